"""`python -m moetuned.daemon` is `moetuned`."""

from moetuned.daemon.main import main

main()
