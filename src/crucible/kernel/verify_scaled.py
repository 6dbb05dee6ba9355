"""What must not be done with numbers that are moved into fp16's range."""

from __future__ import annotations

from crucible.gpus import WARP
from crucible.kernel import nodes as ir
from crucible.kernel.reader import Reader
from crucible.kernel.verify_streams import counts
from crucible.kernel.verify_warpgroups import touched


def largest(reader: Reader, node: ir.Largest) -> None:
    for each in (node.into, node.value):
        reader.element(each, is_read=True)
    if node.into.of.dtype != "float32" or node.into.is_pack or node.value.of.dtype != "word" or not node.value.is_pack:
        reader.say(f"{node.into.of.name}: of a pack of words the largest is a float32, not of {node.value.of.dtype}")
    reader.changes(node.into)


def scale(reader: Reader, node: ir.Scale) -> None:
    scratch = node.scratch
    (reader.role_together if reader.role else reader.together)("a scale")
    if node.threads % WARP or not counts(reader, node.thread, node.threads):
        reader.say(f"{node.threads} threads find a scale, which are not all there are, counted from 0")
    if scratch.dtype != "float32" or scratch.bytes < node.threads // WARP * 4:
        reader.say(f"{scratch.name}: {scratch.bytes} bytes of {scratch.dtype} are no float32 a warp")
    if reader.stage:
        touched(reader, scratch, is_stored=True)
    else:
        reader.known(scratch)
        reader.not_while(scratch, reader.written, "scratch where others may still be reading it")
        reader.written.add(scratch.base)
    reader.element(node.largest, is_read=True)
    reader.put(node.into, True, alike=True)


def split(reader: Reader, node: ir.SplitScaled) -> None:
    for each in (node.value, node.scale):
        reader.element(each, is_read=True)
    reader.put(node.into, True)
    types = (node.value.of.dtype, node.scale.of.dtype, node.into.of.dtype)
    if types != ("word", "float32", "halves") or 2 * node.into.vector != node.value.vector:
        reader.say(f"{node.into.of.name}: of words times a float32 half as many halves are made, not {types}")
