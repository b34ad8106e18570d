"""Formulas of cards: written in a small part of TeX's notation, shown as MathML or as a line of text."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from dtdg_lab.core.errors import ConfigError

SYMBOLS: Mapping[str, str] = MappingProxyType(
    {
        "alpha": "α", "beta": "β", "gamma": "γ", "delta": "δ", "epsilon": "ε", "theta": "θ", "lambda": "λ", "mu": "μ",
        "pi": "π", "rho": "ρ", "sigma": "σ", "tau": "τ", "xi": "ξ", "phi": "φ", "Delta": "Δ", "Gamma": "Γ", "ell": "ℓ",
        "cdot": "·", "times": "×", "le": "≤", "ge": "≥", "ne": "≠", "approx": "≈", "in": "∈", "notin": "∉", "cup": "∪",
        "subseteq": "⊆", "to": "→", "gets": "←", "infty": "∞", "forall": "∀", "lfloor": "⌊", "rfloor": "⌋",
        "lceil": "⌈", "rceil": "⌉", "langle": "⟨", "rangle": "⟩", "circ": "∘", "ldots": "…", "nabla": "∇", "pm": "±",
        "|": "‖", "{": "{", "}": "}",
    }
)  # fmt: skip
LARGE = MappingProxyType({"sum": "∑", "max": "max", "min": "min", "bigcup": "⋃", "argmax": "arg max"})
# the sign above in MathML, and the mark that follows a letter in text
_ACCENTS = MappingProxyType({"hat": ("^", "\u0302"), "tilde": ("~", "\u0303"), "bar": ("¯", "\u0304")})
_TOKEN = re.compile(r"\\([A-Za-z]+|[|{},])|([A-Za-z])|(\d+(?:\.\d+)?)|(\s+)|(.)")
_LETTERS = frozenset("αβγδεθλμπρσταξφℓΔΓ∞")


class Piece(NamedTuple):
    """A part of a formula: as MathML, and as text; ``large`` where limits stand below and above it."""

    mathml: str
    text: str
    large: bool = False


def mathml(formula: str) -> str:
    """A ``<math>`` element of its own line.

    Args:
        formula: such as ``T = sum_{i=1}^{m} T_i``, with a backslash before each command.

    Raises:
        ConfigError: a brace is not closed, or a command is unknown.
    """
    piece = _Reader(formula).all()
    return (
        '<math xmlns="http://www.w3.org/1998/Math/MathML" display="block" '
        f'aria-label="{html.escape(piece.text, quote=True)}">{piece.mathml}</math>'
    )


def plain(formula: str) -> str:
    """The formula as a line of text.

    Raises:
        ConfigError: as of :func:`mathml`.
    """
    return _Reader(formula).all().text


class _Reader:
    """Reads one formula from left to right."""

    def __init__(self, formula: str) -> None:
        self._formula = formula
        self._tokens = [match for match in _TOKEN.finditer(formula) if not match[4]]
        self._at = 0

    def all(self) -> Piece:
        found = self._row(until="")
        if self._at < len(self._tokens):
            raise self._error("a closing brace without an opening one")
        return found

    def _error(self, what: str) -> ConfigError:
        return ConfigError(f"formula {self._formula!r}: {what}. Known commands: {', '.join([*SYMBOLS, *LARGE])}.")

    def _next(self) -> str:
        return self._tokens[self._at][0] if self._at < len(self._tokens) else ""

    def _row(self, until: str) -> Piece:
        pieces: list[Piece] = []
        while (token := self._next()) not in ("", "}", until):
            pieces.append(self._scripted(self._piece()) if token not in "_^" else self._scripted(Piece("<mrow/>", "")))
        return Piece(f"<mrow>{''.join(each.mathml for each in pieces)}</mrow>", "".join(each.text for each in pieces))

    def _scripted(self, base: Piece) -> Piece:
        """The piece with what stands below and above it."""
        scripts: dict[str, Piece] = {}
        while (mark := self._next()) in ("_", "^") and mark:
            if mark in scripts:
                raise self._error(f"two {mark} of one piece")
            self._at += 1
            scripts[mark] = self._piece()
        if not scripts:
            return base
        text = base.text.rstrip() + "".join(mark + _bracketed(piece.text) for mark, piece in scripts.items())
        text += " " if base.large else ""
        kind = {"_": "under", "^": "over"} if base.large else {"_": "sub", "^": "sup"}
        name = "m" + "".join(kind[mark] for mark in "_^" if mark in scripts)
        inner = base.mathml + "".join(scripts[mark].mathml for mark in "_^" if mark in scripts)
        return Piece(f"<{name}>{inner}</{name}>", text)

    def _group(self) -> Piece:
        if self._next() != "{":
            raise self._error("a group in braces is missing")
        self._at += 1
        found = self._row(until="}")
        if self._next() != "}":
            raise self._error("a brace is not closed")
        self._at += 1
        return found

    def _piece(self) -> Piece:
        token = self._next()
        if token == "{":
            return self._group()
        if not token or token == "}":
            raise self._error("it ends where something is needed")
        match = self._tokens[self._at]
        self._at += 1
        if match[1]:
            return self._command(match[1])
        if match[2]:
            return Piece(f"<mi>{match[2]}</mi>", match[2])
        if match[3]:
            return Piece(f"<mn>{match[3]}</mn>", match[3])
        return _operator(match[5])

    def _command(self, name: str) -> Piece:
        if name == "text":
            return self._words()
        if name == "frac":
            over, under = self._group(), self._group()
            text = f"{_bracketed(over.text, '()')}/{_bracketed(under.text, '()')}"
            return Piece(f"<mfrac>{over.mathml}{under.mathml}</mfrac>", text)
        if name in _ACCENTS:
            inner, (sign, mark) = self._group(), _ACCENTS[name]
            accent = f'<mover accent="true">{inner.mathml}<mo>{sign}</mo></mover>'
            return Piece(accent, inner.text + mark)
        if name in LARGE:
            return Piece(f"<mo>{LARGE[name]}</mo>", f"{LARGE[name]} ", large=True)
        if name in ("quad", ","):
            return Piece(f'<mspace width="{1 if name == "quad" else 0.3}em"/>', "   " if name == "quad" else " ")
        if name not in SYMBOLS:
            raise self._error(f"the command {name!r} is not known")
        return _operator(SYMBOLS[name])

    def _words(self) -> Piece:
        """What stands in braces, letter for letter."""
        start = self._tokens[self._at].end() if self._next() == "{" else -1
        stop = self._formula.find("}", start)
        if start < 0 or stop < 0:
            raise self._error("\\text needs a group in braces")
        while self._tokens[self._at].start() < stop:
            self._at += 1
        self._at += 1
        words = self._formula[start:stop]
        return Piece(f"<mtext>{html.escape(words).replace(' ', '&#160;')}</mtext>", words)


def _operator(sign: str) -> Piece:
    """A sign; relations and sums get room in text."""
    if sign in _LETTERS:
        return Piece(f"<mi>{sign}</mi>", sign)
    roomy = sign in "=+−≤≥≠≈∈∉∪⊆→←<>·×"
    sign = "−" if sign == "-" else sign
    roomy = roomy or sign == "−"
    still = ' stretchy="false"' if sign in "()[]{}|⌊⌋⌈⌉" else ""
    return Piece(f"<mo{still}>{html.escape(sign)}</mo>", f" {sign} " if roomy else f"{sign} " if sign == "," else sign)


def _bracketed(text: str, brackets: str = "{}") -> str:
    return text if len(text) == 1 else f"{brackets[0]}{text}{brackets[1]}"
