"""Inline PTX by its meaning: an `asm` statement becomes a C++ block whose variables are the PTX registers."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from crucible.emulator.faults import NotCovered
from crucible.emulator.ptx import collective, memory, scalar, warpgroup
from crucible.emulator.ptx.instruction import REGISTERS, Instruction, Operand
from crucible.emulator.tokens import Token, split, words

_SPECIAL = {
    "%laneid": "::crucible::lane()",
    "%lanemask_eq": "(1u << ::crucible::lane())",
    "%lanemask_lt": "((1u << ::crucible::lane()) - 1u)",
    "%lanemask_le": "((2u << ::crucible::lane()) - 1u)",
    "%lanemask_gt": "(~((2u << ::crucible::lane()) - 1u))",
    "%lanemask_ge": "(~((1u << ::crucible::lane()) - 1u))",
    "%warpid": "(::crucible::id<offsetof(::crucible::Ids, linear)>() / 32)",
    "%smid": "0u",
    "%nsmid": "132u",
    "%clock": "uint32_t(crucible_clock())",
    "%clock_hi": "uint32_t(crucible_clock() >> 32)",
    "%clock64": "crucible_clock()",
    "%globaltimer": "crucible_clock()",
    "%globaltimer_lo": "uint32_t(crucible_clock())",
    "%dynamic_smem_size": "uint32_t(crucible_dynamic_shared_bytes())",
    "WARP_SZ": "32",
    **{f"%{a}.{m}": f"CRUCIBLE_ID({n}, {m})" for a, n in (("tid", "threadIdx"), ("ctaid", "blockIdx"),
       ("ntid", "blockDim"), ("nctaid", "gridDim")) for m in "xyz"},
}  # fmt: skip
_RULES = (*scalar.RULES, *warpgroup.RULES, *memory.RULES, *collective.RULES)
_PREDICATE = re.compile(r"@\s*(!?)\s*([%\w$]+)\s+(.*)", re.DOTALL)
_LABEL = re.compile(r"\s*([A-Za-z_$%][\w$]*)\s*:(?!:)")


@dataclass(frozen=True)
class _Text:
    """Part of an instruction text with the source line it stands on."""

    line: int
    text: str


@dataclass
class _Scope:
    """Names between braces, outermost first."""

    names: list[dict[str, str]] = field(default_factory=lambda: [{}])
    count: int = 0

    def declare(self, name: str) -> str:
        self.count += 1
        self.names[-1][name] = f"crucible_r{self.count}"
        return self.names[-1][name]

    def find(self, name: str) -> str | None:
        return next((names[name] for names in reversed(self.names) if name in names), None)


def translate(tokens: list[Token], line: int) -> str:
    """C++ for the inside of `asm(...)`, which stands on `line`. Raises NotCovered for what has no translation."""
    sections = _sections(tokens)
    outputs = _bindings(sections[1]) if len(sections) > 1 else []
    inputs = _bindings(sections[2]) if len(sections) > 2 else []
    given = [f"crucible_p{i}" for i in range(len(outputs) + len(inputs))]
    before, after = [], []
    for i, (constraint, expression) in enumerate(outputs):
        before.append(f"auto& crucible_o{i} = {expression}; {_entered(i, constraint, f'crucible_o{i}', 'enter_again')}")
        after.append(f"::crucible::ptx::leave(crucible_o{i}, crucible_p{i});")
    for i, (constraint, expression) in enumerate(inputs, len(outputs)):
        before.append(_entered(i, constraint, expression))
    body = _body(_template(sections[0], line), given)
    return (
        "do { "
        + " ".join([*before, "uint32_t crucible_carry = 0;" if "crucible_carry" in body else "", body, *after])
        + " } while (0)"
    )


def _entered(i: int, constraint: str, expression: str, by: str = "enter") -> str:
    """The register of an operand; what is only written starts as zero."""
    kind = constraint.strip("=+&")
    if kind in ("n", "C"):
        return f"const auto crucible_p{i} = {expression};"
    value = f"::crucible::ptx::{by}<'{kind}'>({expression})"
    return f"auto crucible_p{i} = {value if not constraint.startswith('=') else f'decltype({value}){{}}'};"


def _sections(tokens: list[Token]) -> list[list[Token]]:
    """Template, outputs, inputs and clobbers."""
    sections: list[list[Token]] = [[]]
    depth = 0
    for token in tokens:
        depth += token.text in ("(", "[", "{")
        depth -= token.text in (")", "]", "}")
        if token.text in (":", "::") and depth == 0:
            sections.extend([] for _ in token.text)
        else:
            sections[-1].append(token)
    return sections


def _bindings(section: list[Token]) -> list[tuple[str, str]]:
    """Constraint and parenthesised expression of each operand."""
    found = []
    for operand in split(section):
        text = words(operand)
        constraint, opening = re.match(r'"([^"]*)"', text), text.find("(")
        if not constraint or opening < 0 or constraint[1].strip("=+&") not in REGISTERS:
            raise NotCovered(f"inline PTX operand {text}, line {operand[0].line}")
        found.append((constraint[1], text[opening:]))
    return found


def _template(section: list[Token], line: int) -> list[_Text]:
    parts = []
    for token in section:
        if token.kind == "string" and (raw := re.fullmatch(r'R"([^(]*)\((.*)\)\1"', token.text, re.DOTALL)):
            parts += [_Text(token.line + i, f"{row}\n") for i, row in enumerate(raw[2].split("\n"))]
        elif token.kind == "string":
            parts.append(
                _Text(token.line, token.text[1:-1].replace("\\n", "\n").replace("\\t", " ").replace("\\\n", ""))
            )
        elif token.matters:
            raise NotCovered(f"inline PTX whose text comes from the macro {token.text}, line {line}")
    return parts


def _body(parts: list[_Text], given: list[str]) -> str:
    text = re.sub(
        r"//[^\n]*|/\*.*?\*/", lambda found: " " * len(found[0]), "".join(part.text for part in parts), flags=re.DOTALL
    )
    ends: list[tuple[int, int]] = []
    for part in parts:
        ends.append((len(part.text) + (ends[-1][0] if ends else 0), part.line))
    scope, out, labels, at = _Scope(), [], _labels(text), 0
    while at < len(text):
        if label := _LABEL.match(text, at):
            out.append(f"crucible_l_{_word(label[1])}: ;")
            at = label.end()
        elif text[at] in "{}":
            out.append(text[at])
            scope.names.append({}) if text[at] == "{" else scope.names.pop()
            at += 1
        elif text[at].isspace() or text[at] == ";":
            at += 1
        else:
            end = (text + ";").index(";", at)
            line = next(line for last, line in ends if at < last)
            out.append(_statement(" ".join(text[at:end].split()), scope, given, line))
            at = end + 1
    declared = f"__label__ {', '.join(f'crucible_l_{_word(label)}' for label in labels)};" if labels else ""
    return f"{{ {declared} {' '.join(out)} }}" if out else ""


def _labels(text: str) -> list[str]:
    statements = re.split(r"[;{}]", text)
    found = [label[1] for statement in statements for label in _labels_at(statement)]
    return list(dict.fromkeys(found))


def _labels_at(statement: str) -> list[re.Match[str]]:
    found, at = [], 0
    while label := _LABEL.match(statement, at):
        found.append(label)
        at = label.end()
    return found


def _word(label: str) -> str:
    return re.sub(r"\W", "_", label)


def _statement(text: str, scope: _Scope, given: list[str], line: int) -> str:
    if text.startswith(".reg"):
        return _registers(text, scope, line)
    if guard := _PREDICATE.match(text):
        condition = _operand(guard[2], scope, given, line)
        return f"if ({guard[1]}({condition})) {{ {_statement(guard[3], scope, given, line)} }}"
    name, _, rest = text.partition(" ")
    if name in ("bra", "bra.uni"):
        return f"goto crucible_l_{_word(rest.strip())};"
    operands = [_operand(part, scope, given, line) for part in _split(rest, ",")]
    statement = _meaning(Instruction(name, tuple(operands)))
    if statement is None:
        raise NotCovered(f"inline PTX {name}, line {line}")
    return statement


def _meaning(it: Instruction) -> str | None:
    """The C++ of the first rule whose pattern is the whole name and which takes these operands."""
    for pattern, rule in _RULES:
        if (found := pattern.fullmatch(it.name)) and (statement := rule(it, found)) is not None:
            return statement
    return None


def _registers(text: str, scope: _Scope, line: int) -> str:
    """`.reg .b32 a, b<4>;`"""
    shape = re.fullmatch(r"\.reg\s+\.(\w+)\s+(.*)", text)
    if not shape or shape[1] not in REGISTERS:
        raise NotCovered(f"inline PTX {text}, line {line}")
    names = []
    for name in _split(shape[2], ","):
        several = re.fullmatch(r"(.*)<(\d+)>", name)
        names += [f"{several[1].strip()}{i}" for i in range(int(several[2]))] if several else [name]
    # Assigned apart from the declaration: a `goto` may not jump over an initialiser.
    declared = [scope.declare(name.strip().replace("%%", "%")) for name in names]
    return " ".join(f"{REGISTERS[shape[1]]} {name}; {name} = {{}};" for name in declared)


def _split(text: str, at: str) -> list[str]:
    """Parts outside of braces and brackets."""
    parts, depth = [""], 0
    for character in text:
        depth += (character in "{[") - (character in "}]")
        if character == at and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts if part.strip()]


def _operand(text: str, scope: _Scope, given: list[str], line: int) -> Operand:
    if text.startswith("{"):
        return [_scalar(part, scope, given, line) for part in _split(text[1:-1], ",")]
    if text.startswith("["):
        base, sign, offset = re.fullmatch(r"\[\s*([^+\s-]+|-?\d+)\s*([+-]?)\s*(.*?)\s*\]", text).groups()  # type: ignore[union-attr]
        address = f"::crucible::ptx::as<uint64_t>({_scalar(base, scope, given, line)})"
        return f"({address} {sign} ({_scalar(offset, scope, given, line)}))" if sign else address
    if "|" in text:
        return [_scalar(part.strip(), scope, given, line) for part in text.split("|")]
    return _scalar(text, scope, given, line)


def _scalar(text: str, scope: _Scope, given: list[str], line: int) -> str:
    text = text.strip().replace("%%", "%")
    if text.startswith("!"):
        return f"!{_scalar(text[1:], scope, given, line)}"
    if number := re.fullmatch(r"%(\d+)", text):
        if int(number[1]) < len(given):
            return given[int(number[1])]
    elif known := scope.find(text) or _SPECIAL.get(text):
        return known
    elif bits := re.fullmatch(r"0([fFdD])([0-9a-fA-F]+)", text):
        single = bits[1] in "fF"
        return f"__builtin_bit_cast({'float' if single else 'double'}, 0x{bits[2]}{'u' if single else 'ull'})"
    elif text == "_" or re.fullmatch(
        r"[+-]?(0[xX][0-9a-fA-F]+|\d+)U?|[+-]?\d*\.?\d+([eE][+-]?\d+)?|[+-]?\d+\.\d*", text
    ):
        return text
    raise NotCovered(f"inline PTX operand {text}, line {line}")
