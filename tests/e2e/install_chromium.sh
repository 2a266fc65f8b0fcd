#!/usr/bin/env bash
# Installs Debian's chromium for the browser tests when no browser is there yet.
# Without root or apt it says so and leaves the machine as it is: the tests then skip themselves.
set -euo pipefail
if command -v chromium >/dev/null; then exit 0; fi
if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
  echo "install_chromium: chromium missing, and installing it needs root and apt-get"
  exit 0
fi
if ! { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq \
  --no-install-recommends chromium fonts-dejavu-core >/dev/null; }; then
  echo "install_chromium: chromium missing, and apt-get could not install it"
fi
