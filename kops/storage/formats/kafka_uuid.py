"""Kafka's Uuid as text: 16 bytes in the URL-safe base64 alphabet, 22 characters without padding.

kops keeps a Uuid as its canonical text, so two Uuids are equal exactly if their texts are equal. Source: Kafka's Uuid.
"""

from __future__ import annotations

import binascii
from typing import Final

ZERO_UUID: Final = "AAAAAAAAAAAAAAAAAAAAAA"
_ALPHABET: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")
_MAX_LENGTH: Final = 24


def uuid_bytes(text: str) -> bytes:
    """Return the 16 bytes of a Uuid's text, read as Uuid.fromString does: the padding is optional. Raises ValueError."""
    if len(text) > _MAX_LENGTH:
        raise ValueError(f"'{text[:_MAX_LENGTH]}' and more is too long for a base64 UUID")
    digits = text.rstrip("=")
    padding = len(text) - len(digits)
    # Java accepts the complete padding or none, and ignores the unused bits of the last digit.
    if not _ALPHABET.issuperset(digits) or len(digits) % 4 == 1 or (padding and padding != -len(digits) % 4):
        raise ValueError(f"'{text}' is not URL-safe base64")
    data = binascii.a2b_base64(digits.replace("-", "+").replace("_", "/") + "=" * (-len(digits) % 4))
    if len(data) != 16:
        raise ValueError(f"'{text}' has {len(data)} bytes, a UUID has 16")
    return data


def uuid_text(data: bytes) -> str:
    """Return the canonical text of 16 bytes."""
    return binascii.b2a_base64(data, newline=False).decode().rstrip("=").replace("+", "-").replace("/", "_")


def parse_uuid(text: str) -> str:
    """Return the canonical text of a Uuid. Raises ValueError."""
    return uuid_text(uuid_bytes(text))
