#!/usr/bin/env bash
# Installs Debian's Slurm, munge, sshd and rsync for the cluster tests, and starts none of them.
# Without root or apt it says so and leaves the machine as it is: the tests then skip themselves.
set -euo pipefail
PATH=$PATH:/usr/sbin:/sbin
missing=()
for program in slurmctld slurmd munged sshd ssh rsync; do
  command -v "$program" >/dev/null || missing+=("$program")
done
if [ ${#missing[@]} -eq 0 ]; then exit 0; fi
if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
  echo "install_slurm: ${missing[*]} missing, and installing them needs root and apt-get"
  exit 0
fi
# Where an init system runs, installing a package would start it: sshd on every address.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
  printf '#!/bin/sh\nexit 101\n' >"$policy"
  chmod 755 "$policy"
  trap 'rm -f "$policy"' EXIT
fi
if ! { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq \
  --no-install-recommends slurm-wlm munge openssh-server openssh-client rsync >/dev/null; }; then
  echo "install_slurm: ${missing[*]} missing, and apt-get could not install them"
fi
