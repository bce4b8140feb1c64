"""The messages of service.proto, read from that file: a message is a dict of the fields that are set, by their names.

Only what that file uses of Protocol Buffers is here: proto3, no maps, no groups, no floats.
"""

import os
import re
import struct

PROTO = os.path.join(os.path.dirname(__file__), "../../Sources/ServiceWire/Messages/service.proto")
TOKEN = re.compile(r'"[^"]*"|[A-Za-z_][A-Za-z_0-9.]*|[0-9]+|[{}=;]')
VARINTS = {"uint32", "uint64", "int32", "int64", "sint64", "bool"}


class Malformed(Exception):
    """Bytes that are no message of the type."""


class Field:
    def __init__(self, name, kind, number, repeated, oneof):
        self.name, self.kind, self.number, self.repeated, self.oneof = name, kind, number, repeated, oneof


class Schema:
    """All messages and enumerations of the file. A name is looked for within the message that uses it first."""

    def __init__(self, path=PROTO):
        with open(path, encoding="utf-8") as file:
            text = re.sub(r"//.*", "", file.read())
        self.tokens = TOKEN.findall(text)
        self.position = 0
        self.messages, self.enums = {}, {}
        while self.position < len(self.tokens):
            word = self.take()
            if word == "message":
                self.message("")
            elif word == "enum":
                self.enum("")
            else:
                while self.take() != ";":
                    pass

    def take(self):
        self.position += 1
        return self.tokens[self.position - 1]

    def enum(self, scope):
        name = scope + self.take()
        self.take()
        values = {}
        while (word := self.take()) != "}":
            self.take()
            values[word] = int(self.take())
            self.take()
        self.enums[name] = values

    def message(self, scope):
        name = scope + self.take()
        self.take()
        fields, oneof = [], None
        self.messages[name] = fields
        while True:
            word = self.take()
            if word == "}":
                if oneof is None:
                    return
                oneof = None
            elif word == "message":
                self.message(name + ".")
            elif word == "enum":
                self.enum(name + ".")
            elif word == "oneof":
                oneof = self.take()
                self.take()
            elif word == "reserved":
                while self.take() != ";":
                    pass
            else:
                repeated = word == "repeated"
                kind = self.take() if word in ("repeated", "optional") else word
                field = self.take()
                self.take()
                # A field with a presence of its own is as one that is alone in a oneof.
                group = field if word == "optional" else oneof
                fields.append(Field(field, kind, int(self.take()), repeated, group))
                self.take()

    def resolve(self, scope, kind):
        while True:
            name = f"{scope}.{kind}" if scope else kind
            if name in self.messages or name in self.enums:
                return name
            if not scope:
                raise KeyError(kind)
            scope = scope.rpartition(".")[0]

    # Writing

    def encode(self, name, message):
        out = bytearray()
        known = {field.name for field in self.messages[name]}
        if unknown := set(message) - known:
            raise KeyError(f"{name} has no {unknown}")
        for field in self.messages[name]:
            if field.name not in message:
                continue
            values = message[field.name] if field.repeated else [message[field.name]]
            for value in values:
                out += self.encode_field(name, field, value)
        return bytes(out)

    def encode_field(self, scope, field, value):
        kind, number = field.kind, field.number
        if kind == "sint64":
            return varint(number << 3) + varint((value << 1) ^ (value >> 63))
        if kind in VARINTS:
            return varint(number << 3) + varint(int(value) & (1 << 64) - 1)
        if kind == "double":
            return varint(number << 3 | 1) + struct.pack("<d", value)
        if kind == "string":
            value = value.encode()
        elif kind != "bytes":
            name = self.resolve(scope, kind)
            if name in self.enums:
                value = self.enums[name][value] if isinstance(value, str) else value
                return varint(number << 3) + varint(value)
            value = self.encode(name, value)
        return varint(number << 3 | 2) + varint(len(value)) + value

    # Reading

    def decode(self, name, data):
        fields = {field.number: field for field in self.messages[name]}
        message = {}
        for number, kind, value in records(data):
            field = fields.get(number)
            if field is None:
                message.setdefault("unknown fields", []).append(number)
                continue
            if field.repeated and field.kind in VARINTS and kind == 2:
                message.setdefault(field.name, []).extend(packed(value))
                continue
            value = self.decode_field(name, field, kind, value)
            if field.repeated:
                message.setdefault(field.name, []).append(value)
                continue
            if field.oneof:
                for other in fields.values():
                    if other.oneof == field.oneof:
                        message.pop(other.name, None)
            message[field.name] = value
        return message

    def decode_field(self, scope, field, kind, value):
        wanted = 0 if field.kind in VARINTS else 1 if field.kind == "double" else 2
        name = None
        if field.kind not in VARINTS and field.kind not in ("double", "string", "bytes"):
            name = self.resolve(scope, field.kind)
            wanted = 0 if name in self.enums else 2
        if kind != wanted:
            raise Malformed(f"{field.name} with wire type {kind}")
        if name in self.messages:
            return self.decode(name, value)
        if name:
            return next((word for word, number in self.enums[name].items() if number == value), value)
        if field.kind == "sint64":
            return (value >> 1) ^ -(value & 1)
        if field.kind in ("int64", "int32"):
            return value - (1 << 64) if value >> 63 else value
        if field.kind == "bool":
            return bool(value)
        if field.kind == "double":
            return struct.unpack("<d", value)[0]
        if field.kind == "string":
            try:
                return value.decode()
            except UnicodeDecodeError as error:
                raise Malformed("a string that is no UTF-8") from error
        return value


def varint(number):
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def packed(data):
    """Numbers one after another."""
    value = shift = 0
    for byte in data:
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            yield value
            value = shift = 0
    if shift:
        raise Malformed("a number is cut off")


def records(data):
    """Number, wire type and value of each field."""
    position = 0

    def take(count):
        nonlocal position
        if count > len(data) - position:
            raise Malformed("a message is cut off")
        position += count
        return data[position - count : position]

    def number():
        value = shift = 0
        while True:
            byte = take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value & (1 << 64) - 1
            shift += 7
            if shift > 63:
                raise Malformed("a number is too long")

    while position < len(data):
        tag = number()
        kind = tag & 7
        if kind == 0:
            yield tag >> 3, kind, number()
        elif kind == 1:
            yield tag >> 3, kind, take(8)
        elif kind == 2:
            yield tag >> 3, kind, take(number())
        elif kind == 5:
            yield tag >> 3, kind, take(4)
        else:
            raise Malformed(f"wire type {kind}")


# Values of the definition language


def to_value(value):
    if value is None:
        return {"null": True}
    if isinstance(value, bool):
        return {"boolean": value}
    if isinstance(value, int):
        return {"integer": value}
    if isinstance(value, float):
        return {"number": value}
    if isinstance(value, str):
        return {"string": value}
    if isinstance(value, bytes):
        return {"bytes": value}
    if isinstance(value, (list, tuple)):
        return {"array": {"elements": [to_value(element) for element in value]}}
    members = [{"name": name, "value": to_value(part)} for name, part in sorted(value.items())]
    return {"object": {"members": members}}


def from_value(wire):
    ((kind, value),) = wire.items()
    if kind == "null":
        return None
    if kind == "array":
        return [from_value(element) for element in value.get("elements", [])]
    if kind == "object":
        return {member.get("name", ""): from_value(member["value"]) for member in value.get("members", [])}
    return value


SCHEMA = Schema()
