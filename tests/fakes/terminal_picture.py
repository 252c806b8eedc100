"""A terminal as far as moetunectl draws on one: bytes in, rows of text out. What it does not know fails the test that wrote it."""

from __future__ import annotations

import re

from moetuned.cli.text_width import columns_of

_CSI = re.compile(r"\x1b\[([?]?)([0-9;]*)([A-Za-z])")


class TerminalPicture:
    """`feed` takes what was written; `rows` is what stands there, `modes` the private modes that are on."""

    def __init__(self, columns: int, rows: int) -> None:
        self.columns, self._rows = columns, rows
        self._cells = self._empty()
        self._row = self._column = 0
        self._text = ""
        self._rest = b""
        self.modes = {7, 25}
        """Wrap at the end of a line, and show the cursor."""
        self.overflowed = False
        """Whether anything was written beyond its edges since it was cleared, where lines do not wrap."""
        self.fed_bytes = 0
        self.colours: set[str] = set()

    def _empty(self) -> list[list[str]]:
        return [[" "] * self.columns for _ in range(self._rows)]

    def resize(self, columns: int, rows: int) -> None:
        """As a terminal that keeps what fits."""
        old = self._cells
        self.columns, self._rows = columns, rows
        self._cells = self._empty()
        for row, line in enumerate(old[:rows]):
            self._cells[row][: min(columns, len(line))] = line[:columns]
        self._row, self._column = min(self._row, rows - 1), min(self._column, columns - 1)

    @property
    def rows(self) -> list[str]:
        return ["".join(line).rstrip() for line in self._cells]

    @property
    def text(self) -> str:
        return "\n".join(self.rows)

    def feed(self, data: bytes) -> None:
        self.fed_bytes += len(data)
        data, self._rest = self._rest + data, b""
        try:
            text = data.decode()
        except UnicodeDecodeError as error:
            if len(data) - error.start > 3:
                raise
            text, self._rest = data[: error.start].decode(), data[error.start :]
        text = self._text + text
        self._text = ""
        position = 0
        while position < len(text):
            if text[position] == "\x1b":
                found = _CSI.match(text, position)
                if found is None:
                    assert len(text) - position < 20, f"unknown sequence {text[position : position + 20]!r}"
                    self._text = text[position:]
                    return
                self._sequence(*found.groups())
                position = found.end()
                continue
            self._character(text[position])
            position += 1

    def _sequence(self, private: str, numbers: str, final: str) -> None:
        values = [int(number) if number else 0 for number in numbers.split(";")]
        if private:
            assert final in "hl"
            (self.modes.add if final == "h" else self.modes.discard)(values[0])
        elif final == "H":
            row, column = [*values, 1][:2] if numbers else (1, 1)
            self.overflowed |= not (1 <= row <= self._rows and 1 <= column <= self.columns)
            self._row, self._column = min(row, self._rows) - 1, min(column, self.columns) - 1
        elif final == "K":
            assert values == [0]
            self._cells[self._row][self._column :] = [" "] * (self.columns - self._column)
        elif final == "J":
            assert values == [2]
            self._cells = self._empty()
            self.overflowed = False
        else:
            assert final == "m", f"unknown sequence {final}"
            self.colours.add(numbers)

    def _next_row(self) -> None:
        if self._row == self._rows - 1:
            self._cells = [*self._cells[1:], [" "] * self.columns]
        else:
            self._row += 1

    def _character(self, char: str) -> None:
        if char == "\r":
            self._column = 0
            return
        if char == "\n":
            self._next_row()
            return
        if char in "\x18\x07":
            return
        assert char.isprintable(), f"{char!r} was written"
        width = columns_of(char)
        if width == 0:
            self._cells[self._row][max(0, self._column - 1)] += char
            return
        line = self._cells[self._row]
        if self._column + width > self.columns:
            if 7 not in self.modes:  # cut, as it should not have to be
                self.overflowed = True
                return
            self._next_row()
            self._column = 0
            line = self._cells[self._row]
        if line[self._column] == "" and self._column:  # half of a wide one is gone, so is the other
            line[self._column - 1] = " "
        line[self._column : self._column + width] = [char, ""][:width]
        after = self._column + width
        if after < self.columns and line[after] == "":
            line[after] = " "
        self._column += width
