"""`make demo`: the main job on this machine, with a real backend in a memory cgroup of its own, in two to three minutes.

Everything it makes (model, cgroup, processes, settings) is taken back, also after Ctrl-C.
"""
