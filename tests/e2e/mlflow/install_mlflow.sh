#!/bin/sh
# Makes .venv-mlflow with an MLflow server; quick when it is there.
set -eu
here=$(dirname "$0")
venv=${1:-.venv-mlflow}
if [ -x "$venv/bin/python" ] && cmp -s "$here/requirements.txt" "$venv/.requirements.txt"; then
    exit 0
fi
echo "setup: installing an MLflow server into $venv"
test -x "$venv/bin/python" || "${PYTHON:-python3}" -m venv "$venv"
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check -r "$here/requirements.txt"
cp "$here/requirements.txt" "$venv/.requirements.txt"
