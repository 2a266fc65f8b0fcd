#!/bin/sh
# Makes .venv-image with what the service's image installs; quick when it is there.
# Its Python has to be one that the image's user may start: not one in root's home.
set -eu
venv=${1:-.venv-image}
locks="requirements/service.txt requirements/build.txt"
# shellcheck disable=SC2086
if [ -x "$venv/bin/python" ] && cat $locks | cmp -s - "$venv/.locks"; then
    exit 0
fi
echo "setup: installing what the service's image has into $venv"
for python in /usr/local/bin/python3 /usr/bin/python3.12 /usr/bin/python3.11 "${PYTHON:-python3}"; do
    if "$python" -c 'import sys, venv; sys.exit(not (3, 11, 2) <= sys.version_info < (3, 13))' 2>/dev/null; then
        break
    fi
done
test -x "$venv/bin/python" || "$python" -m venv "$venv"
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-compile --require-hashes --no-deps -r requirements/service.txt 2>"$venv/pip.log" || { cat "$venv/pip.log"; exit 1; }
# shellcheck disable=SC2086
cat $locks > "$venv/.locks"
