"""Builds kops. All static metadata is in pyproject.toml.

The hot modules (`kops._compiled.HOT_MODULES`) are compiled with mypyc if mypy and a C compiler are available. This is optional: if it
fails, one line says so, and kops is installed with the interpreted sources. `KOPS_NO_COMPILE=1` turns it off.
"""

from __future__ import annotations

import os
import runpy
import sys
import tempfile
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).resolve().parent
GENERATED = "build/mypyc"  # the C source
# pip runs this file three times for one install. These commands of the first two times build nothing, and mypyc takes half a minute.
METADATA_ONLY = {"egg_info", "dist_info", "sdist"}
# Only the hot modules are checked, because their imports may need packages that a build environment lacks. They have their own cache,
# because `make test` runs mypy at the same time.
CHECKING = ["--config-file=", "--ignore-missing-imports", "--follow-imports=silent", "--cache-dir=build/mypy_cache"]


def notice(reason: str) -> None:
    """Print one line on stderr. pip shows it with -v."""
    print(f"kops: the hot loop stays interpreted: {reason}", file=sys.stderr, flush=True)


def compiler_error() -> str:
    """Compile a line of C. Returns the first line of the error, or nothing. mypyc works for half a minute before it calls the compiler."""
    from distutils.ccompiler import new_compiler
    from distutils.errors import CCompilerError, DistutilsError
    from distutils.sysconfig import customize_compiler

    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "one.c"
        source.write_text("int one(void) { return 1; }\n")
        try:
            compiler = new_compiler()
            customize_compiler(compiler)
            compiler.compile([str(source)], output_dir=folder)
        except (CCompilerError, DistutilsError, OSError) as error:
            return str(error).splitlines()[0]
    return ""


def extensions() -> list[Extension]:
    """Return the extensions that mypyc builds from the hot modules, or none if that is impossible or unwanted."""
    declared = runpy.run_path(str(ROOT / "kops" / "_compiled.py"))
    groups = {
        group: [path for name in names if (ROOT / (path := name.replace(".", "/") + ".py")).exists()]
        for group, names in declared["GROUPS"].items()
    }
    sources = [source for each in groups.values() for source in each]
    if not sources:
        return []
    if METADATA_ONLY & set(sys.argv[1:]):
        return []
    if os.environ.get("KOPS_NO_COMPILE"):
        notice("KOPS_NO_COMPILE is set")
        return []
    broken = compiler_error()
    if broken:
        notice(f"the C compiler failed ({broken})")
        return []
    try:
        from mypyc.build import mypycify
    except ImportError as error:
        notice(f"mypyc is missing ({error})")
        return []
    try:
        found: list[Extension] = mypycify(
            [*CHECKING, *sources],
            opt_level="3",
            debug_level="0",
            separate=[(paths, group) for group, paths in groups.items() if paths],
            target_dir=GENERATED,
        )
    except SystemExit as error:  # mypycify reports type errors in this way
        notice(f"mypyc ended with {error.code}")
        return []
    for group, level in declared["OPTIMIZED"].items():
        for extension in found:
            if extension.name == f"{group}__mypyc":
                extension.extra_compile_args = [level if each == "-O3" else each for each in extension.extra_compile_args]
    if os.name == "posix":
        for extension in found:
            # Extensions find each other's functions by tables. A call of a function of their own then needs no look-up by name.
            # Warnings about generated code help nobody. -Wall takes a third of the time, and with mypyc's -Werror a new compiler's new
            # warning would end the build.
            extension.extra_compile_args = [*extension.extra_compile_args, "-fvisibility=hidden", "-Wno-all", "-Wno-error"]
    return found


class OptionalBuildExt(build_ext):  # type: ignore[misc]  # setuptools' own types are not always there
    """A build_ext that builds all extensions or none: half of them would import the missing half."""

    def finalize_options(self) -> None:
        """Compile several extensions at a time: each is one file of C."""
        super().finalize_options()
        if getattr(self, "parallel", None) is None:
            self.parallel = os.cpu_count() or 1

    def run(self) -> None:
        """Build. A missing or failing compiler is not an error."""
        from distutils.errors import CCompilerError, DistutilsError

        if self.inplace and self.extensions:
            for path in runpy.run_path(str(ROOT / "kops" / "_compiled.py"))["leftovers"](str(ROOT)):
                Path(path).unlink()
        try:
            super().run()
        except (CCompilerError, DistutilsError, OSError) as error:
            notice(f"the C compiler failed ({str(error).splitlines()[0]})")
            for extension in self.extensions:
                Path(self.get_ext_fullpath(extension.name)).unlink(missing_ok=True)
            self.extensions: list[Extension] = []
            self.distribution.ext_modules = []


setup(ext_modules=extensions(), cmdclass={"build_ext": OptionalBuildExt})
