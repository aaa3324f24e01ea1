"""Loads from a byte array that compile to one instruction each, and a copy: the only unchecked memory accesses.

Every function takes C-contiguous ``uint8`` arrays, and indices that the caller has compared with the arrays' ends.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic


def _address(context: Any, builder: Any, kind: Any, array: Any, index: Any, bits: int) -> Any:
    data = context.make_array(kind)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [index]), ir.IntType(bits).as_pointer())


def _loader(bits: int, result: Any, *, big_endian: bool) -> Any:
    @intrinsic
    def load(_typing: Any, array: Any, _index: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            value = builder.load(_address(context, builder, signature.args[0], args[0], args[1], bits))
            value.align = 1
            return builder.bswap(value) if big_endian else value

        return result(array, types.int64), codegen

    return load


load_i16 = _loader(16, types.int16, big_endian=True)
load_i32 = _loader(32, types.int32, big_endian=True)
load_i64 = _loader(64, types.int64, big_endian=True)
load_u64_raw = _loader(64, types.uint64, big_endian=False)


def _copier() -> Any:
    @intrinsic
    def copy(_typing: Any, target: Any, _at: Any, source: Any, _start: Any, _count: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            to, origin = (
                builder.gep(context.make_array(signature.args[k])(context, builder, args[k]).data, [args[k + 1]])
                for k in (0, 2)
            )
            cgutils.raw_memcpy(builder, to, origin, args[4], 1)  # type: ignore[no-untyped-call]
            return context.get_dummy_value()

        return types.void(target, types.int64, source, types.int64, types.int64), codegen

    return copy


copy = _copier()
"""``copy(target, at, source, start, count)``: target[at : at + count] = source[start : start + count], two arrays."""
