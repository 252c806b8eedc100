"""The first page of a swap file or device (union swap_header in include/linux/swap.h; mkswap(8)).

1024 bytes for a boot loader, then version, last page, number of bad pages (32 bits each), UUID (16 bytes) and label (16 bytes);
the magic word is at the end of the page, whose size is that of the machine that made it.
"""

from __future__ import annotations

import uuid

HEADER_BYTES = 65536
"""The largest page: so many bytes hold a header of any machine."""
_MAGIC = b"SWAPSPACE2"
_PAGE_SIZES = (4096, 8192, 16384, 32768, 65536)
_UUID_AT = 1024 + 12


def swap_uuid(head: bytes) -> str | None:
    """The UUID of a swap signature in the first bytes of a file or device, as mkswap writes it; None when there is no signature."""
    for size in _PAGE_SIZES:
        if head[size - len(_MAGIC) : size] == _MAGIC:
            return str(uuid.UUID(bytes=head[_UUID_AT : _UUID_AT + 16]))
    return None


def is_blank(head: bytes) -> bool:
    """Whether nothing was ever written there: all zeros."""
    return not head.strip(b"\0")
