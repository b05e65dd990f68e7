"""Writes inputs for fuzzers that read choices with FuzzedDataProvider, and protobuf messages without a compiler.

FuzzedDataProvider takes text from the front of the input and numbers from its end, so the first number is the last byte.
"""
import struct


class Choices:
    """Collects choices in the order in which the fuzzer asks for them. data() is the input that makes them."""

    def __init__(self):
        self.front = bytearray()
        self.numbers = bytearray()

    def number(self, value, low, high):
        """ConsumeIntegralInRange(low, high)."""
        if not low <= value <= high:
            raise ValueError(f"{value} is outside of [{low}, {high}]")
        self.numbers += (value - low).to_bytes(((high - low).bit_length() + 7) // 8, "big")
        return self

    def pick(self, index, size):
        """PickValueInArray of `size` values."""
        return self.number(index, 0, size - 1)

    def byte(self, value):
        """ConsumeIntegral<uint8_t>."""
        return self.number(value, 0, 255)

    def boolean(self, value):
        """ConsumeBool."""
        return self.byte(int(value))

    def text(self, data, most):
        """ConsumeRandomLengthString(most)."""
        if len(data) > most:
            raise ValueError(f"{len(data)} bytes do not fit into {most}")
        self.front += data.replace(b"\\", b"\\\\")
        if len(data) < most:
            self.front += b"\\ "
        return self

    def data(self):
        return bytes(self.front + self.numbers[::-1])


def varint(value):
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def number(field, value):
    return varint(field << 3) + varint(value)


def fixed64(field, value):
    return varint(field << 3 | 1) + struct.pack("<Q", value)


def double(field, value):
    return varint(field << 3 | 1) + struct.pack("<d", value)


def message(field, body):
    """Also a string, or bytes."""
    body = body.encode() if isinstance(body, str) else body
    return varint(field << 3 | 2) + varint(len(body)) + body


def packed(field, values):
    return message(field, b"".join(varint(value) for value in values))
