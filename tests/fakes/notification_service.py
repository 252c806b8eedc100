"""A desktop's notification service on a real session bus: what it is told is printed, one JSON object a line.

Speaks as much of the D-Bus protocol (https://dbus.freedesktop.org/doc/dbus-specification.html) as that takes, so that no library is needed.
Arguments: the bus's socket, user and group id to become, and each capability to claim.
"""

from __future__ import annotations

import json
import os
import socket
import struct
import sys
from typing import Any

NAME = "org.freedesktop.Notifications"
_CALL, _RETURN, _ERROR = 1, 2, 3
_PATH, _INTERFACE, _MEMBER, _ERROR_NAME, _REPLY, _DESTINATION, _SENDER, _SIGNATURE = range(1, 9)
_FIELD_TYPES = {
    _PATH: "o",
    _INTERFACE: "s",
    _MEMBER: "s",
    _ERROR_NAME: "s",
    _REPLY: "u",
    _DESTINATION: "s",
    _SIGNATURE: "g",
}
_ALIGNMENT = {"y": 1, "g": 1, "v": 1, "u": 4, "i": 4, "b": 4, "s": 4, "o": 4, "a": 4, "(": 8, "{": 8}


class Reader:
    """Values of a message, little-endian."""

    def __init__(self, data: bytes, at: int = 0) -> None:
        self.data, self.at = data, at

    def align(self, size: int) -> None:
        self.at += -self.at % size

    def values(self, signature: str) -> list[Any]:
        found = []
        while signature:
            first, signature = split(signature)
            found.append(self.value(first))
        return found

    def value(self, kind: str) -> Any:
        self.align(_ALIGNMENT[kind[0]])
        if kind in "yuib":
            size, form = (1, "B") if kind == "y" else (4, "i" if kind == "i" else "I")
            self.at += size
            return struct.unpack_from(f"<{form}", self.data, self.at - size)[0]
        if kind in "sog":
            length = self.value("y" if kind == "g" else "u")
            self.at += length + 1
            return self.data[self.at - length - 1 : self.at - 1].decode()
        if kind == "v":
            return self.value(self.value("g"))
        if kind[0] == "a":
            length = self.value("u")
            self.align(_ALIGNMENT[kind[1]])
            end, found = self.at + length, []
            while self.at < end:
                found.append(self.value(kind[1:]))
            return dict(found) if kind[1] == "{" else found
        return self.values(kind[1:-1])


class Writer:
    """The other way round."""

    def __init__(self) -> None:
        self.data = bytearray()

    def values(self, signature: str, *values: Any) -> Writer:
        for value in values:
            first, signature = split(signature)
            self.value(first, value)
        return self

    def value(self, kind: str, value: Any) -> None:
        self.data += bytes(-len(self.data) % _ALIGNMENT[kind[0]])
        if kind in "yub":
            self.data += struct.pack("<B" if kind == "y" else "<I", value)
        elif kind in "sog":
            text = value.encode()
            self.data += struct.pack("<B" if kind == "g" else "<I", len(text)) + text + b"\0"
        elif kind[0] == "a":
            inner = Writer()
            for each in value:
                inner.value(kind[1:], each)
            self.data += struct.pack("<I", len(inner.data))
            self.data += bytes(-len(self.data) % _ALIGNMENT[kind[1]]) + inner.data


def split(signature: str) -> tuple[str, str]:
    """The first whole type, and the rest."""
    if signature[0] == "a":
        first, rest = split(signature[1:])
        return "a" + first, rest
    if signature[0] in "({":
        depth = 0
        for end, char in enumerate(signature, 1):
            depth += (char in "({") - (char in ")}")
            if depth == 0:
                return signature[:end], signature[end:]
    return signature[0], signature[1:]


class Bus:
    """A connection that has said hello."""

    def __init__(self, path: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(path)
        self.socket.sendall(b"\0AUTH EXTERNAL " + str(os.geteuid()).encode().hex().encode() + b"\r\n")
        assert self.socket.recv(1000).startswith(b"OK")
        self.socket.sendall(b"BEGIN\r\n")
        self.serial = 0
        self.call("Hello")

    def send(self, kind: int, fields: dict[int, Any], signature: str = "", *values: Any) -> int:
        self.serial += 1
        body = Writer().values(signature, *values).data
        if signature:
            fields = {**fields, _SIGNATURE: signature}
        entries = Writer()
        for number, value in fields.items():
            entries.data += bytes(-len(entries.data) % 8)
            entries.values("yg", number, _FIELD_TYPES[number])
            entries.value(_FIELD_TYPES[number], value)
        head = struct.pack("<BBBBIII", ord("l"), kind, 0, 1, len(body), self.serial, len(entries.data)) + entries.data
        self.socket.sendall(head + bytes(-len(head) % 8) + body)
        return self.serial

    def receive(self) -> tuple[int, int, dict[int, Any], list[Any]]:
        """Kind, serial, header fields and values."""
        head = self._exactly(16)
        assert head[:1] == b"l"
        body_length, serial, fields_length = struct.unpack_from("<III", head, 4)
        rest = self._exactly(fields_length + -fields_length % 8 + body_length)
        fields = dict(Reader(head + rest, 12).value("a(yv)"))
        body = Reader(rest[len(rest) - body_length :])
        return head[1], serial, fields, body.values(fields.get(_SIGNATURE, ""))

    def call(self, member: str, signature: str = "", *values: Any) -> list[Any]:
        """Ask the bus itself; what arrives meanwhile is left out, so before anybody can call, or where nobody else does."""
        name = "org.freedesktop.DBus"
        fields = {_PATH: "/org/freedesktop/DBus", _INTERFACE: name, _MEMBER: member, _DESTINATION: name}
        serial = self.send(_CALL, fields, signature, *values)
        while True:
            kind, _, got, answer = self.receive()
            if got.get(_REPLY) == serial:
                assert kind == _RETURN, answer
                return answer

    def _exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            more = self.socket.recv(count - len(data))
            if not more:
                sys.exit(0)
            data += more
        return data


def main(path: str, user: str, group: str, *capabilities: str) -> None:
    if os.geteuid() == 0:  # here and not before: the interpreter may be where only root gets at it
        os.setgroups([])
        os.setgid(int(group))
        os.setuid(int(user))
    bus = Bus(path)
    bus.call("RequestName", "su", NAME, 4)
    print(json.dumps({"ready": NAME}), flush=True)
    number = 0
    while True:
        kind, serial, fields, values = bus.receive()
        if kind != _CALL:
            continue
        reply = {_REPLY: serial, _DESTINATION: fields[_SENDER]}
        said: dict[str, Any] = {"method": fields[_MEMBER]}
        if fields[_MEMBER] == "GetCapabilities":
            bus.send(_RETURN, reply, "as", list(capabilities))
        elif fields[_MEMBER] == "Notify":
            said |= zip(
                ("app", "replaces", "icon", "summary", "body", "actions", "hints", "expires"), values, strict=True
            )
            number += 1
            said["number"] = said["replaces"] or number
            said["uid"] = bus.call("GetConnectionUnixUser", "s", fields[_SENDER])[0]
            bus.send(_RETURN, reply, "u", said["number"])
        elif fields[_MEMBER] == "CloseNotification":
            said["number"] = values[0]
            bus.send(_RETURN, reply)
        else:
            bus.send(_ERROR, {**reply, _ERROR_NAME: "org.freedesktop.DBus.Error.UnknownMethod"})
        print(json.dumps(said), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
