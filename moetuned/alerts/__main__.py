"""One delivery in a process of its own: the order as JSON on standard input, what became of it as JSON on standard output.

Whatever a sink does there, hangs, grows or crashes, is this process's. Its parent ends it at the deadline; where that is gone, it ends itself.
"""

from __future__ import annotations

import signal
import sys

import msgspec

from moetuned.alerts import find
from moetuned.schema.alert import Alert, kind_of_sink
from moetuned.schema.event import Event

ORDER_LIMIT_BYTES = 4 << 20


class Order(msgspec.Struct, frozen=True):
    """What is to be delivered. `seconds`: after this the process ends itself."""

    event: Event
    config: Alert
    seconds: int


def main() -> int:
    """Deliver what standard input says. 0: standard output says what became of it."""
    order = msgspec.json.decode(sys.stdin.buffer.read(ORDER_LIMIT_BYTES), type=Order)
    signal.alarm(max(1, order.seconds))
    results = find(kind_of_sink(order.config)).send(order.event, order.config)
    sys.stdout.buffer.write(msgspec.json.encode(list(results)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
