#!/bin/sh
# Prints the path of a Python that runs and is 3.11 or newer: $KOPS_PYTHON, else the first of the usual names. A name on the PATH may be a
# shim that only prints an error, so each is tried.
set -u
for name in ${KOPS_PYTHON:-} python3.14 python3.13 python3.12 python3.11 python3 python; do
  path=$(command -v "$name" 2>/dev/null) || continue
  if "$path" -c 'import sys, venv; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then
    printf '%s\n' "$path"
    exit 0
  fi
done
echo "kops needs Python 3.11 or newer with the module venv, as python3.14 ... python3.11, python3 or python on the PATH." >&2
echo "Install one, or name it: make KOPS_PYTHON=/path/to/python" >&2
exit 1
