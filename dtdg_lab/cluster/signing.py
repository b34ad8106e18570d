"""Messages signed with a session's key: HMAC-SHA256 before JSON."""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
from typing import Any

from dtdg_lab.core.errors import ControlError

_LENGTH = 32


def new_key() -> str:
    """Return a fresh 256-bit key as hexadecimal text."""
    return secrets.token_hex(32)


def sign(key: str, payload: bytes) -> bytes:
    """Return the payload after its signature."""
    return hmac.digest(bytes.fromhex(key), payload, hashlib.sha256) + payload


def verify(key: str, message: bytes) -> bytes:
    """Return the payload of a signed message.

    Raises:
        ControlError: the signature was not made with this key.
    """
    signature, payload = message[:_LENGTH], message[_LENGTH:]
    if not hmac.compare_digest(signature, hmac.digest(bytes.fromhex(key), payload, hashlib.sha256)):
        raise ControlError("the message was not signed with this session's key, and was ignored.")
    return payload


def pack(key: str, value: dict[str, Any]) -> bytes:
    """Return a signed JSON object."""
    return sign(key, json.dumps(value).encode())


def unpack(key: str, message: bytes) -> dict[str, Any]:
    """Return the JSON object of a signed message.

    Raises:
        ControlError: the signature was not made with this key, or the payload is not a JSON object.
    """
    value = json.loads(verify(key, message))
    if not isinstance(value, dict):
        raise ControlError(f"the control message is a {type(value).__name__}, but must be an object.")
    return value
