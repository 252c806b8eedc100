"""`python -m moetuned.xllamacpp_server -m MODEL …`: see `server`."""

from __future__ import annotations

import sys

from moetuned.xllamacpp_server.server import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
