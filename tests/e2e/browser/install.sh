#!/usr/bin/env bash
# Installs Debian's chromium, and Playwright with axe into `.playwright` (160 MB), where they are
# missing. Without root, apt or a registry it says so and leaves the machine as it is: the tests
# then skip themselves.
set -euo pipefail
python=${1:-python3}
folder=.playwright
lock=requirements/browser.txt
if ! cmp -s "$lock" "$folder/.lock"; then
  echo "install: Playwright and axe into $folder"
  if "$python" -m pip install --quiet --disable-pip-version-check --no-compile --require-hashes --no-deps --upgrade \
    --target "$folder" -r "$lock"; then
    cp "$lock" "$folder/.lock"
  else
    echo "install: Playwright missing, and pip could not install it"
  fi
fi
if command -v chromium >/dev/null; then exit 0; fi
if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
  echo "install: chromium missing, and installing it needs root and apt-get"
  exit 0
fi
if ! { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq \
  --no-install-recommends chromium fonts-dejavu-core >/dev/null; }; then
  echo "install: chromium missing, and apt-get could not install it"
fi
