"""A look-up by timestamp goes through a batch's records without building them, and no further than it must."""

from __future__ import annotations

import random
import uuid

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.sim.disk import SimulatedDisk
from sparkonce.broker_lite.log.checkpoints import encode_partition_metadata
from sparkonce.broker_lite.log.config import LogConfig
from sparkonce.broker_lite.log.partition_log import PartitionLog
from sparkonce.broker_lite.log.steps import finish
from sparkonce.kafka.protocol.compression import Compression, compress, decompress, inflated_pieces
from sparkonce.kafka.protocol.errors import CorruptBatchError, KafkaError
from sparkonce.kafka.protocol.legacy_records import decode_any, encode_message_set, first_since
from sparkonce.kafka.protocol.records import Record, encode_batch, read_header, write_crc
from tests.chance import examples

NOW = 1_700_000_000_000
PIECE = 64 * 1024
SIZES = st.sampled_from([0, 1, 63, 64, 8_191, PIECE - 8, PIECE - 7, PIECE - 1, PIECE, 3 * PIECE])
"""Records that end at, around and beyond the ends of inflated pieces."""
COMPRESSED = [each for each in Compression if each]


@settings(max_examples=examples(100), deadline=None)
@given(
    st.lists(st.tuples(st.integers(-3, 2**40), SIZES), min_size=1, max_size=12),
    st.sampled_from(Compression),
    st.sampled_from([0, 1, 2]),
    st.data(),
)
def test_the_answer_is_that_of_decoding_all_records(
    given_records: list[tuple[int, int]], codec: Compression, magic: int, data: st.DataObject
) -> None:
    written = [
        Record(b"k", random.Random(at).randbytes(size), timestamp=timestamp, offset=at)
        for at, (timestamp, size) in enumerate(given_records)
    ]
    if magic == 2:
        batch = bytes(encode_batch(written, compression=codec))
    else:
        codec = Compression.GZIP if codec == Compression.ZSTD else codec
        whole = encode_message_set(written, magic=magic, compression=codec)
        batch = bytes(whole[: read_header(whole).size])
    decoded = decode_any(batch)
    for _ in range(5):
        late = data.draw(st.sampled_from([timestamp + more for timestamp, _ in given_records for more in (0, 1)]))
        start = data.draw(st.integers(0, len(written)))
        fitting = ((r.timestamp, r.offset) for r in decoded if r.timestamp >= late and r.offset >= start)
        assert finish(first_since(batch, late, start)) == next(fitting, None)


@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.LZ4, Compression.ZSTD])
def test_a_batch_is_inflated_no_further_than_needed_and_no_further_than_allowed(codec: Compression) -> None:
    large = bytes(compress(codec, bytes(2_000_000)))
    pieces = inflated_pieces(codec, large, 1_000_000)
    assert 0 < len(next(piece for piece in pieces if piece)) <= PIECE
    with pytest.raises(CorruptBatchError, match="more than 1000000 bytes"):
        list(pieces)
    records = [Record(None, b"", timestamp=1), Record(None, bytes(2_000_000), timestamp=5)]
    batch = bytes(encode_batch(records, compression=codec))
    for wanted, found in ((1, (1, 0)), (5, (5, 1))):
        steps = first_since(batch, wanted, 0)
        assert sum(1 for _ in steps) < 5, "the large value is not inflated for what stands before it"
        assert finish(first_since(batch, wanted, 0)) == found


@settings(max_examples=examples(60), deadline=None)
@given(st.binary(max_size=300_000), st.sampled_from(COMPRESSED), st.integers(0, 2**32))
def test_pieces_are_the_whole(data: bytes, codec: Compression, seed: int) -> None:
    data += random.Random(seed).randbytes(seed % (3 * PIECE)) + bytes(seed % 400_000)
    packed = bytes(compress(codec, data))
    assert bytes(decompress(codec, packed)) == data
    if data and codec != Compression.ZSTD:  # its library takes the end of the data for the end of the frame
        with pytest.raises(CorruptBatchError):
            decompress(codec, packed[: len(packed) - 1])


def test_records_that_end_too_soon_are_an_error() -> None:
    batch = bytearray(encode_batch([Record(None, b"v", timestamp=1)] * 3))
    batch[57:61] = (4).to_bytes(4, "big")
    with pytest.raises(CorruptBatchError):
        finish(first_since(bytes(batch), 2, 0))


def test_a_look_up_goes_on_where_a_header_promised_too_much_and_ends_with_the_log() -> None:
    metadata = encode_partition_metadata(uuid.UUID(int=1))
    log = PartitionLog.begin(SimulatedDisk(), "/logs/t-0", LogConfig(), NOW, metadata)
    promising = bytearray(encode_batch([Record(None, b"v", timestamp=NOW)] * 2, compression=Compression.LZ4))
    promising[35:43] = (NOW + 9).to_bytes(8, "big")
    write_crc(promising)
    log.append(promising, 0, NOW)
    log.append(bytearray(encode_batch([Record(None, b"v", timestamp=NOW + 8)])), 0, NOW)
    assert finish(log.offset_for_timestamp(NOW + 5)) == (NOW + 8, 2)
    steps = log.offset_for_timestamp(NOW + 5)
    next(steps)
    log.close(NOW)
    with pytest.raises(KafkaError, match="the log is closed"):
        list(steps)
    assert log.failure is None, "the disk is not to blame"
