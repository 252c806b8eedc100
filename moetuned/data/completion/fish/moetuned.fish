# Completion of moetuned for fish, which looks for it by this name.
source (status dirname)/moetunectl.fish
