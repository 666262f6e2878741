"""The five compression codecs of record batches, with a limit on the decompressed size.

The bytes are those Kafka's clients write: gzip members, LZ4 frames, Zstandard frames, and snappy either in the framing
of the xerial library (a magic, two versions, then blocks each behind a 32-bit length) or, from some clients, as one raw
block. Each codec's library is imported when first needed.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from enum import IntEnum

from sparkonce.kafka.protocol.errors import CorruptBatchError
from sparkonce.kafka.protocol.limits import MAX_INFLATED_BYTES
from sparkonce.kafka.protocol.primitives import Buffer


class Compression(IntEnum):
    """The codec's number in the attributes of a record batch."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = struct.Struct(">8sii")
_XERIAL_BLOCK_BYTES = 32 * 1024
_BLOCK_LENGTH = struct.Struct(">i")
LZ4_FAST_LEVEL = 9
ZSTD_LEVEL = 3
_GZIP_LEVEL = -1
_LZ4_THOROUGH_FROM = 3
_LZ4_LEAST_BYTES = 15
_LZ4_CONTENT_SIZE = 0x08
_PIECE_BYTES = 64 * 1024
"""The size of the pieces that are read and returned while decompressing."""


def decompress(codec: int, data: Buffer, limit: int = MAX_INFLATED_BYTES) -> Buffer:
    """Decompress `data` (or not: `Compression.NONE`). Raises CorruptBatchError, also beyond `limit` bytes."""
    return data if codec == Compression.NONE else b"".join(inflated_pieces(codec, data, limit))


def inflated_pieces(codec: int, data: Buffer, limit: int = MAX_INFLATED_BYTES) -> Iterator[Buffer]:
    """Decompress `data` piece by piece; only a block of snappy is decompressed as a whole, whatever its size.

    Raises:
        CorruptBatchError: as `decompress`, when the invalid piece is reached.
    """
    if codec == Compression.NONE:
        yield data
        return
    inflated = 0
    for piece in _pieces(codec, memoryview(data), limit):
        inflated += len(piece)
        if inflated > limit:
            raise _too_large(limit)
        yield piece


def _pieces(codec: int, data: memoryview, limit: int) -> Iterator[Buffer]:
    if codec == Compression.SNAPPY:
        return _snappy_decompress(data, limit)
    inflate = {
        Compression.GZIP: _gunzip,
        Compression.LZ4: _lz4_decompress,
        Compression.ZSTD: _zstd_decompress,
    }.get(codec)  # type: ignore[call-overload]
    if inflate is None:
        raise CorruptBatchError(f"unknown compression codec {codec}")
    pieces: Iterator[Buffer] = inflate(data)
    return pieces


def compress(codec: int, data: Buffer, level: int | None = None) -> Buffer:
    """Compress `data` in the form that Kafka's clients write, at the codec's default level or that of KIP-390.

    Levels are gzip's 1 to 9 or -1, lz4's 1 to 17 and zstd's -131072 to 22; the others have none.

    Raises:
        ValueError: if the codec is unknown.
    """
    if codec == Compression.NONE:
        return data
    if codec == Compression.GZIP:
        packer = zlib.compressobj(_GZIP_LEVEL if level is None else level, wbits=31)
        return packer.compress(data) + packer.flush()
    if codec == Compression.SNAPPY:
        return _snappy_compress(data)
    if codec == Compression.LZ4:
        import lz4.frame

        # In Kafka 9 selects the fast compressor, all other levels the thorough one, which begins at 3 in this library.
        depth = 0 if level in (None, LZ4_FAST_LEVEL) else max(level or 0, _LZ4_THOROUGH_FROM)
        return bytes(lz4.frame.compress(data, compression_level=depth, block_linked=False))
    if codec == Compression.ZSTD:
        import zstandard

        return zstandard.ZstdCompressor(level=ZSTD_LEVEL if level is None else level).compress(data)
    raise ValueError(f"unknown compression codec {codec}")


def _too_large(limit: int) -> CorruptBatchError:
    return CorruptBatchError(f"compressed records inflate to more than {limit} bytes")


def _gunzip(data: memoryview) -> Iterator[Buffer]:
    position, tail = 0, b""
    while tail or position < len(data):
        member = zlib.decompressobj(wbits=31)
        while not member.eof:
            chunk: Buffer = tail
            if not tail:
                chunk = data[position : position + _PIECE_BYTES]
                position += len(chunk)
            try:
                piece = member.decompress(chunk, _PIECE_BYTES)
            except zlib.error as error:
                raise CorruptBatchError(f"gzip: {error}") from error
            if not (piece or chunk or member.eof):
                raise CorruptBatchError("gzip: the data ends in the middle")
            tail = member.unconsumed_tail
            yield piece
        tail = member.unused_data


def _snappy_decompress(data: memoryview, limit: int) -> Iterator[Buffer]:
    if bytes(data[:8]) != _XERIAL_MAGIC:
        yield _snappy_block(data, limit, 0)
        return
    inflated = 0
    position = _XERIAL_HEADER.size
    while position < len(data):
        if position + _BLOCK_LENGTH.size > len(data):
            raise CorruptBatchError("snappy: the data ends in a block's length")
        (size,) = _BLOCK_LENGTH.unpack_from(data, position)
        position += _BLOCK_LENGTH.size
        if not 0 < size <= len(data) - position:
            raise CorruptBatchError(f"snappy: block of {size} bytes, {len(data) - position} left")
        block = _snappy_block(data[position : position + size], limit, inflated)
        inflated += len(block)
        position += size
        yield block


def _snappy_block(data: Buffer, limit: int, inflated: int) -> Buffer:
    import cramjam

    block = bytes(data)
    try:
        if inflated + cramjam.snappy.decompress_raw_len(block) > limit:
            raise _too_large(limit)
        return bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as error:
        raise CorruptBatchError(f"snappy: {error}") from error


def _snappy_compress(data: Buffer) -> bytes:
    import cramjam

    out = bytearray(_XERIAL_HEADER.pack(_XERIAL_MAGIC, 1, 1))
    for start in range(0, len(data), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(bytes(data[start : start + _XERIAL_BLOCK_BYTES])))
        out += _BLOCK_LENGTH.pack(len(block)) + block
    return bytes(out)


def _lz4_decompress(data: memoryview) -> Iterator[Buffer]:
    import lz4.frame

    decompressor = lz4.frame.LZ4FrameDecompressor()
    position = 0
    while not decompressor.eof:
        chunk = bytes(data[position : position + _PIECE_BYTES]) if decompressor.needs_input else b""
        position += len(chunk)
        try:
            piece: bytes = decompressor.decompress(chunk, max_length=_PIECE_BYTES)
        except RuntimeError as error:
            raise CorruptBatchError(f"lz4: {error}") from error
        if not (piece or chunk or decompressor.eof) and position == len(data):
            raise CorruptBatchError("lz4: the data ends in the middle")
        yield piece


def with_lz4_header_checksum(frame: bytes, *, over_magic: bool) -> bytes:
    """Return an LZ4 frame with a recomputed header checksum.

    Old clients computed it `over_magic`: including the frame's magic. In messages of format v0 Kafka still writes it
    so, and does not check it on reads.
    """
    if len(frame) < _LZ4_LEAST_BYTES:
        return frame
    end = 14 if frame[4] & _LZ4_CONTENT_SIZE else 6
    checksum = _xxh32_short(frame[0 if over_magic else 4 : end]) >> 8 & 0xFF
    return frame[:end] + bytes([checksum]) + frame[end + 1 :]


def _xxh32_short(data: bytes) -> int:
    """Compute XXH32 with seed 0 of fewer than 16 bytes."""
    mask, first, second, third, fourth, fifth = 0xFFFFFFFF, 2654435761, 2246822519, 3266489917, 668265263, 374761393
    value = fifth + len(data)
    whole = len(data) // 4 * 4
    for position in range(0, whole, 4):
        value = (value + int.from_bytes(data[position : position + 4], "little") * third) & mask
        value = ((value << 17 | value >> 15) & mask) * fourth & mask
    for byte in data[whole:]:
        value = (value + byte * fifth) & mask
        value = ((value << 11 | value >> 21) & mask) * first & mask
    value = (value ^ value >> 15) * second & mask
    value = (value ^ value >> 13) * third & mask
    return value ^ value >> 16


def _zstd_decompress(data: memoryview) -> Iterator[Buffer]:
    import zstandard

    try:
        with zstandard.ZstdDecompressor().stream_reader(bytes(data), read_across_frames=True) as stream:
            while piece := stream.read(_PIECE_BYTES):
                yield piece
    except zstandard.ZstdError as error:
        raise CorruptBatchError(f"zstd: {error}") from error
