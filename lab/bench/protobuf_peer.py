"""A replacement of Spark's ``from_protobuf``, of which Maven has no version for Spark 4: a function in Java.

Like ``from_protobuf``, it parses with Google's `DynamicMessage` by the message's descriptor. It returns a Row, which
Spark converts once more; ``from_protobuf`` makes Spark's internal rows directly.
"""

from __future__ import annotations

import base64
from pathlib import Path

from google.protobuf import descriptor_pb2

from lab.java_classes import compiled
from sparkonce.connectors.values.protobuf.schema import compile_text, read_set
from sparkonce.jobs.shared.jars import spark_jars

FUNCTION = "parse_document"
CLASS = "bench.ParseDocument"
RETURNS = (
    "id BIGINT, device STRING, site STRING, at TIMESTAMP, day INT, temperature DOUBLE, humidity DOUBLE, count INT, "
    "valid BOOLEAN, note STRING"
)
ARTIFACTS = (("com.google.protobuf", "protobuf-java", "4.31.1"),)
PROTO = """\
syntax = "proto3";
package bench;
import "google/protobuf/timestamp.proto";
message Document {
  optional int64 id = 1;
  optional string device = 2;
  optional string site = 3;
  google.protobuf.Timestamp at = 4;
  optional int32 day = 5;
  optional double temperature = 6;
  optional double humidity = 7;
  optional int32 count = 8;
  optional bool valid = 9;
  optional string note = 10;
}
"""
_JAVA = """\
package bench;

import com.google.protobuf.DescriptorProtos.FileDescriptorProto;
import com.google.protobuf.Descriptors.Descriptor;
import com.google.protobuf.Descriptors.FieldDescriptor;
import com.google.protobuf.Descriptors.FileDescriptor;
import com.google.protobuf.DynamicMessage;
import com.google.protobuf.Message;
import com.google.protobuf.TimestampProto;
import java.time.Instant;
import java.util.Base64;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.api.java.UDF1;

public final class ParseDocument implements UDF1<byte[], Row> {
  private static final Descriptor DOCUMENT = load();
  private static final FieldDescriptor[] FIELDS = DOCUMENT.getFields().toArray(new FieldDescriptor[0]);

  private static Descriptor load() {
    try {
      FileDescriptorProto file = FileDescriptorProto.parseFrom(Base64.getDecoder().decode("DESCRIPTOR"));
      FileDescriptor[] imports = {TimestampProto.getDescriptor()};
      return FileDescriptor.buildFrom(file, imports).findMessageTypeByName("Document");
    } catch (Exception error) {
      throw new ExceptionInInitializerError(error);
    }
  }

  @Override
  public Row call(byte[] value) throws Exception {
    DynamicMessage message = DynamicMessage.parseFrom(DOCUMENT, value);
    Object[] row = new Object[FIELDS.length];
    for (int at = 0; at < row.length; at++) {
      if (message.hasField(FIELDS[at])) {
        Object found = message.getField(FIELDS[at]);
        row[at] = found instanceof Message ? moment((Message) found) : found;
      }
    }
    return RowFactory.create(row);
  }

  private static Instant moment(Message timestamp) {
    Descriptor kind = timestamp.getDescriptorForType();
    long seconds = (Long) timestamp.getField(kind.findFieldByNumber(1));
    int nanos = (Integer) timestamp.getField(kind.findFieldByNumber(2));
    return Instant.ofEpochSecond(seconds, nanos);
  }
}
"""


def jars(directory: Path) -> list[str]:
    """Return the jars of the function, for `spark.jars`; the compiled one is written to ``directory``.

    Raises:
        PeerMissingError: if Maven cannot fetch what it needs, or there is no Java compiler.
    """
    needed = spark_jars(f"protobuf-java-{ARTIFACTS[0][2]}", ARTIFACTS)
    source = _JAVA.replace("DESCRIPTOR", _descriptor())
    return [*needed, compiled("ParseDocument", source, needed, directory)]


def _descriptor() -> str:
    """Return the description of `PROTO`, a FileDescriptorProto in base64."""
    found = descriptor_pb2.FileDescriptorProto()
    read_set(compile_text(PROTO)).CopyToProto(found)
    return base64.b64encode(found.SerializeToString()).decode()
