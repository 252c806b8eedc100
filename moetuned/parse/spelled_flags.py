"""Settings out of a command line: flags in all their spellings, with the last of two equal ones counting."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence


def spelled_flags(
    arguments: Sequence[str], spellings: Mapping[str, str], switches: Collection[str] = (), off: Collection[str] = ()
) -> dict[str, str]:
    """Text of each setting that was said, by its name; "" for one whose value is missing, "on" for one of the `switches`,
    "off" where the spelling is one of `off`.

    `spellings`: a flag's spelling and its setting's name. Takes `--flag value` and `--flag=value`; a word that is no known flag is
    passed over.
    """
    said: dict[str, str] = {}
    position = 0
    while position < len(arguments):
        spelling, equals, joined = arguments[position].partition("=")
        position += 1
        name = spellings.get(spelling)
        if name is None:
            continue
        if name in switches:
            said[name] = "off" if spelling in off else "on"
        elif equals:
            said[name] = joined
        elif position < len(arguments):
            said[name] = arguments[position]
            position += 1
        else:
            said[name] = ""
    return said
