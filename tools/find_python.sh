#!/bin/sh
# Prints the path of the Python to use: $KOPS_PYTHON, else one on the PATH under the usual names that runs and is 3.11 or newer.
# A name on the PATH may be a shim that only prints an error, so each is tried. Of several, the first is taken, unless another can compile
# the hot modules and it can't, or another needs clearly less CPU: some are built without optimization and need a fifth more.
set -u

# Prints 0 or 1 (without the headers that the C compiler needs), the CPU microseconds of a short program, and the Python's real path.
look='
import os, sys, sysconfig, time, venv
if sys.version_info < (3, 11):
    sys.exit(1)
def program():
    found = {}
    for number in range(3000):
        found[number & 63] = found.get(number & 63, 0) + len(str(number)) * (number | 1)
    return sorted(found.values())
times = []
for _ in range(25):
    begin = time.process_time_ns()
    program()
    times.append(time.process_time_ns() - begin)
bare = not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h"))
print(int(bare), min(times) // 1000, os.path.realpath(sys.executable))
'

if [ -n "${KOPS_PYTHON:-}" ]; then
  if path=$(command -v "$KOPS_PYTHON") && "$path" -c "$look" >/dev/null 2>&1; then
    printf '%s\n' "$path"
    exit 0
  fi
  echo "KOPS_PYTHON=$KOPS_PYTHON does not run, has no module venv or is older than 3.11." >&2
  exit 1
fi

best= best_bare=1 best_time=0 seen=:
set -f
IFS=:
for name in python3.14 python3.13 python3.12 python3.11 python3 python; do
  for directory in $PATH; do
    path=$directory/$name
    [ -x "$path" ] || continue
    found=$("$path" -c "$look" 2>/dev/null) || continue
    IFS=' ' read -r bare time real <<END
$found
END
    case $seen in *":$real:"*) continue ;; esac
    seen=$seen$real:
    if [ -z "$best" ] || [ "$bare" -lt "$best_bare" ] || { [ "$bare" -eq "$best_bare" ] && [ $((time * 100)) -lt $((best_time * 92)) ]; }; then
      best=$path best_bare=$bare best_time=$time
    fi
  done
done
if [ -n "$best" ]; then
  printf '%s\n' "$best"
  exit 0
fi
echo "kops needs Python 3.11 or newer with the module venv, as python3.14 ... python3.11, python3 or python on the PATH." >&2
echo "Install one, or name it: make KOPS_PYTHON=/path/to/python" >&2
exit 1
