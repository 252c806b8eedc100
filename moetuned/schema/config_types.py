"""Types of keys of the configuration that are text or a number; `schema.units` reads them."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

Size = Annotated[str | int, Meta(description="size")]
Duration = Annotated[str | int | float, Meta(description="duration")]
