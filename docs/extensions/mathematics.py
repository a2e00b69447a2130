"""A hook of mkdocs: formulas of proofs, written in plain characters, become MathML, which browsers typeset.

No script and no font is needed. What is not a formula (a name of the library, words) stays code: a formula has letters,
numbers, operators and the functions below, and nothing else.
"""

from __future__ import annotations

import html
import re
from typing import Any

FUNCTIONS = {"log", "exp", "sinh", "cosh", "tanh", "sign", "max", "min", "erf", "erfc", "inf", "sup", "lim", "Var"}
FUNCTIONS |= {"Beta", "Gamma", "clip", "mod", "and", "det", "cos", "sin", "coth", "liminf", "sens", "diag", "Re", "ker"}
_PRODUCTS = re.compile(r"d?[A-Za-z]{1,2}")  # `kx` is k times x, `dz` a differential
_NOT_PRODUCTS = {"as", "at", "by", "if", "in", "is", "no", "of", "on", "or", "to", "so", "be", "we", "it"}
_SUPER = {**dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹", "0123456789", strict=True)), "⁻": "-", "⁺": "+", "ᵀ": "T", "ⁿ": "n"}
_SUB = {**dict(zip("₀₁₂₃₄₅₆₇₈₉", "0123456789", strict=True)), "ₜ": "t", "ᵢ": "i", "ₙ": "n", "ₖ": "k", "ₛ": "s"}
_BIG = "∑∏∫"
_WIDE = "   "  # so many spaces set two formulas of a line apart
_TOKEN = re.compile(
    r"(?P<space> +)|(?P<library>[A-Za-z_]{2,}(?:\.[A-Za-z_]+)+)"
    r"|(?P<number>\d[\d,]*\d(?:\.\d+)?(?:e-?\d+)?|\d+(?:\.\d+)?(?:e-?\d+)?|\.\d+)"
    r"|(?P<name>[A-Za-z]+)|(?P<letter>[½¼]|[α-ωΑ-Ωĥũωψℝℕℓϕϑ∂∞∅…ℱ𝟙]\u0303?|\.\.\.)|(?P<primes>['′]+)"
    r"|(?P<operator><=|>=|!=|->|[-+*/=<>≤≥≈≠∝∈∉⊂∪∩→↦⇒⇔←·×±∓∘~|‖,;:!∑∏∫√()\[\]{}^_∎⌈⌉⌊⌋⟨⟩≪≫≼⪯∀∃¬%])"
    rf"|(?P<super>[{''.join(_SUPER)}]+)|(?P<sub>[{''.join(_SUB)}]+)|(?P<dot>\.)"
)
_PRETTY = {"<=": "≤", ">=": "≥", "!=": "≠", "->": "→", "-": "−", "*": "·"}
_SIGNED = ("number", "name", "letter")  # what a sign in a script belongs to; it stands alone in (x)_+
_CLOSING = {"(": ")", "[": "]", "{": "}"}
PAGES = ("theory", "selection", "tight")  # how the names of pages with proofs begin
LONG = 24  # characters, from which on a phone may be too narrow for a formula


class NotAFormula(ValueError):
    """What is left as it is written."""


class _Reader:
    """Tokens into MathML, by recursive descent; scripts bind to the atom before them."""

    def __init__(self, text: str, words: bool) -> None:
        self.words, self.at = words, 0
        self.tokens: list[tuple[str, str]] = []
        start = 0
        while start < len(text):
            match = _TOKEN.match(text, start)
            if match is None:
                raise NotAFormula(text[start:])
            self.tokens.append((str(match.lastgroup), match[0]))
            start = match.end()

    def row(self, until: str | None = None) -> str:
        parts = []
        while self.at < len(self.tokens):
            kind, text = self.tokens[self.at]
            if kind == "operator" and text == until:
                break
            if kind == "space":
                self.at += 1
                gap = 1.5 if len(text) >= len(_WIDE) else 0.3 if self.beside_words() else 0
                parts.append(f'<mspace width="{gap}em"></mspace>' if gap else "")
            else:
                parts.append(self.scripted())
        return "".join(parts)

    def scripted(self) -> str:
        big = self.tokens[self.at][1] in _BIG
        base, below, above = self.atom(), "", ""
        while self.at < len(self.tokens):
            kind, text = self.tokens[self.at]
            if kind == "super":
                self.at, above = self.at + 1, above + _scripts(text, _SUPER)
            elif kind == "sub":
                self.at, below = self.at + 1, below + _scripts(text, _SUB)
            elif kind == "primes":
                self.at, above = self.at + 1, above + f"<mo>{'′' * len(text)}</mo>"
            elif text in ("^", "_"):
                self.at += 1
                script = self.script()
                above, below = (above + script, below) if text == "^" else (above, below + script)
            else:
                break
        under, over = ("munder", "mover") if big and "∫" not in base else ("msub", "msup")
        if below and above:
            both = "munderover" if under == "munder" else "msubsup"
            return f"<{both}>{base}<mrow>{below}</mrow><mrow>{above}</mrow></{both}>"
        if below:
            return f"<{under}>{base}<mrow>{below}</mrow></{under}>"
        return f"<{over}>{base}<mrow>{above}</mrow></{over}>" if above else base

    def script(self) -> str:
        """What is raised or lowered: one atom, with its sign, or what brackets hold."""
        if self.at >= len(self.tokens):
            raise NotAFormula("a script is missing")
        kind, text = self.tokens[self.at]
        if text in ("(", "{"):
            self.at += 1
            inner = self.row(_CLOSING[text])
            self.close(_CLOSING[text])
            return inner
        if text in "-+":
            self.at += 1
            follows = self.tokens[self.at][0] if self.at < len(self.tokens) else "space"
            return f"<mo>{_PRETTY.get(text, text)}</mo>" + (self.script() if follows in _SIGNED else "")
        if kind == "name" and len(text) > 1:  # Laplace, eff, max
            self.at += 1
            return f"<mtext>{text}</mtext>"
        return self.atom()

    def atom(self) -> str:
        kind, text = self.tokens[self.at]
        self.at += 1
        if kind == "number":
            return f"<mn>{text}</mn>"
        if kind == "letter":
            return f"<mn>{text}</mn>" if text in "½¼" else f"<mi>{'…' if text == '...' else text}</mi>"
        if kind == "name":
            return self.name(text)
        if kind == "library" and self.words:
            return f"<mtext><code>{text}</code></mtext>"
        if kind == "dot":
            if not self.words and self.at < len(self.tokens):
                raise NotAFormula("a dotted name")
            return "<mo>.</mo>"
        if kind == "library":
            raise NotAFormula(text)
        if kind in ("super", "sub", "primes") or text in ("^", "_"):
            if kind == "sub":  # as in 2F1, whose first index comes before it
                return f"<msub><mi></mi><mrow>{_scripts(text, _SUB)}</mrow></msub>"
            raise NotAFormula("a script without a base")
        if text == "√":
            return f"<msqrt>{self.script()}</msqrt>"
        if text in _CLOSING:
            inner = self.row(_CLOSING[text])
            if self.at < len(self.tokens) or not self.words:  # half-open intervals and long lines may not close
                self.close(_CLOSING[text])
                return f"<mrow>{_fence(text)}{inner}{_fence(_CLOSING[text])}</mrow>"
            return f"<mrow>{_fence(text)}{inner}</mrow>"
        if text in "|‖⟨⟩)]":
            return _fence(text)
        return f"<mo>{html.escape(_PRETTY.get(text, text))}</mo>"

    def beside_words(self) -> bool:
        """Whether the space that was just passed has a word before or after it."""
        around = self.tokens[max(0, self.at - 2) : self.at - 1] + self.tokens[self.at : self.at + 1]
        return any(kind == "name" and not _is_symbol(text) for kind, text in around)

    def name(self, text: str) -> str:
        if text in FUNCTIONS:
            called = self.at < len(self.tokens) and self.tokens[self.at][0] != "space"
            return f'<mi mathvariant="normal">{text}</mi>' + ("" if called else '<mspace width="0.17em"></mspace>')
        if _is_symbol(text):
            letters = "".join(f"<mi>{letter}</mi>" for letter in text)
            return letters if len(text) == 1 else f"<mrow>{letters}</mrow>"
        if not self.words:
            raise NotAFormula(text)
        return f"<mtext>{text}</mtext>"

    def close(self, bracket: str) -> None:
        if self.at >= len(self.tokens) or self.tokens[self.at][1] != bracket:
            raise NotAFormula(f"{bracket} is missing")
        self.at += 1


def _is_symbol(name: str) -> bool:
    return name in FUNCTIONS or (_PRODUCTS.fullmatch(name) is not None and name not in _NOT_PRODUCTS)


def _fence(bracket: str) -> str:
    """A bracket of the height of a letter: these formulas are flat."""
    return f'<mo stretchy="false" lspace="0" rspace="0">{bracket}</mo>'


def _scripts(text: str, plain: dict[str, str]) -> str:
    return "".join(f"<mn>{plain[c]}</mn>" if plain[c].isdigit() else f"<mo>{plain[c]}</mo>" for c in text)


def mathml(text: str, words: bool = False) -> str:
    """The formula as the content of `<math>`; `words` may stand between."""
    reader = _Reader(text.strip(), words)
    found = reader.row()
    if reader.at < len(reader.tokens):
        raise NotAFormula(text)
    return found


def inline(code: str) -> str | None:
    """The formula in a line of text, or None where this is none. A long one scrolls where the page is narrower."""
    try:
        found = f"<math>{mathml(code)}</math>"
    except NotAFormula:
        return None
    return f'<span class="long">{found}</span>' if len(code) > LONG else found


def display(block: str) -> str | None:
    """The lines of a block, each a formula with its indent; None where one of them is none, or all are words."""
    rows = []
    for line in block.rstrip("\n").split("\n"):
        try:
            indent = (len(line) - len(line.lstrip())) * 0.5
            rows.append(f'<mtr><mtd><mspace width="{indent}em"></mspace>{mathml(line, words=True)}</mtd></mtr>')
        except NotAFormula:
            return None
    return f'<math display="block"><mtable columnalign="left" displaystyle="true">{"".join(rows)}</mtable></math>'


def typeset(page: str) -> str:
    """The HTML of a page with its formulas typeset."""
    blocks = re.compile(
        r'<div class="(?:language-text )?highlight"><pre><span></span><code>(.*?)</code></pre></div>', re.DOTALL
    )

    def block(match: re.Match[str]) -> str:
        found = display(html.unescape(re.sub(r"<[^>]+>", "", match[1])))
        return match[0] if found is None else f'<div class="formula">{found}</div>'

    def code(match: re.Match[str]) -> str:
        return match[0] if match[1] is None else inline(html.unescape(match[1])) or match[0]

    page = blocks.sub(block, page)
    return re.sub(r"<pre.*?</pre>|<code>([^<]*)</code>", code, page, flags=re.DOTALL)


def on_page_content(content: str, page: Any, **_: Any) -> str:
    """Typeset pages with proofs."""
    return typeset(content) if page.file.src_uri.startswith(PAGES) else content
