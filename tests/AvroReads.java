import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericDatumReader;
import org.apache.avro.io.DecoderFactory;

/** Reads values of Avro as Java does: a line of JSON for each pair of schemas, and for each a line of what is wrong, or "". */
public class AvroReads {
  public static void main(String[] args) throws Exception {
    ObjectMapper json = new ObjectMapper();
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line; (line = in.readLine()) != null; ) {
      System.out.println(wrong(json.readTree(line)).replaceAll("\\s+", " "));
    }
  }

  private static String wrong(JsonNode pair) {
    String what = "the writer's schema";
    try {
      Schema writer = new Schema.Parser().parse(pair.get("writer").asText());
      what = "the reader's schema";
      Schema reader = new Schema.Parser().parse(pair.get("reader").asText());
      what = "a value";
      for (JsonNode value : pair.get("values")) {
        byte[] data = Base64.getDecoder().decode(value.asText());
        new GenericDatumReader<Object>(writer, reader).read(null, DecoderFactory.get().binaryDecoder(data, null)).toString();
      }
      return "";
    } catch (RuntimeException | StackOverflowError | java.io.IOException error) {
      return what + ": " + error;
    }
  }
}
