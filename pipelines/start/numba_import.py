"""Imports numba without SciPy. Numba searches SciPy for a BLAS at import, which takes a fifth of a second."""

from __future__ import annotations

import sys
from contextlib import suppress

from pipelines.start.switch import is_on


def import_numba() -> None:
    """Imports the modules that numba needs for its first kernel, but not SciPy. No kernel of jbod calls a BLAS.

    Numba searches again before it compiles code that needs a BLAS. If SciPy is loaded already, or numba keeps the
    module elsewhere, numba is imported as usual.
    """
    if not is_on("numba") or "numba.np.arraymath" in sys.modules or "scipy.linalg" in sys.modules:
        return
    sys.modules["scipy.linalg"] = None  # type: ignore[assignment]
    try:
        with suppress(ImportError):
            from numba.np import arraymath

            arraymath._HAVE_BLAS = True
    finally:
        del sys.modules["scipy.linalg"]
