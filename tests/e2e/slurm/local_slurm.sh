#!/usr/bin/env bash
# A real Slurm of two nodes on this machine, each with eight fake H100s, behind an sshd of its own.
#
#   local_slurm.sh up DIR UV     DIR: a directory that every account can enter; UV: PyPI's uv
#   local_slurm.sh down DIR
#
# Needs root. Environment (up): ACCOUNT, CLUSTER, PORT_CTLD, PORT_NODE1, PORT_NODE2, PORT_SSH,
# PYTHON (for SkyPilot's runtime; default /usr/bin/python3), CLOUDS (that SkyPilot may rent from;
# default slurm). Everything listens on 127.0.0.1. DIR/operator is the home of who rents here.
# What each line is there for: docs/skypilot.md.
set -euo pipefail
PATH=$PATH:/usr/sbin:/sbin
COMMAND=$1
D=$2

daemons() { ls "$D"/run/slurmctld.pid "$D"/run/slurmd-*.pid "$D"/run/sshd.pid "$D"/run/munged.pid 2>/dev/null || true; }

# A pid from a file counts only while its process names our directory.
ours() { [ -r "/proc/$1/cmdline" ] && tr '\0' ' ' <"/proc/$1/cmdline" | grep -qF "$D"; }

# What runs as the account, and root's halves of its SSH connections.
of_account() {
  { find /proc -maxdepth 1 -name '[0-9]*' -user "$ACCOUNT" 2>/dev/null
    grep -lsaE "^sshd: $ACCOUNT\b" /proc/[0-9]*/cmdline; } | sed -E 's:^/proc/([0-9]+).*:\1:' | sort -u || true
}

stop() { # stop SIGNAL: ends what is left; true when nothing was
  local pid left=1
  for file in $(daemons); do
    pid=$(cat "$file")
    if ours "$pid"; then kill "-$1" "$pid" 2>/dev/null || true; left=0; fi
  done
  for pid in $(of_account); do kill "-$1" "$pid" 2>/dev/null || true; left=0; done
  return $((1 - left))
}

if [ "$COMMAND" = down ]; then
  ACCOUNT=$(cat "$D/account")
  for attempt in $(seq 40); do
    if [ "$attempt" -lt 20 ]; then signal=TERM; else signal=KILL; fi
    if stop $signal; then break; fi
    sleep 0.25
  done
  if uid=$(id -u "$ACCOUNT" 2>/dev/null); then
    userdel "$ACCOUNT"
    rm -rf "/tmp/uv_cache_$uid"
  fi
  exit 0
fi

UV=$3
umask 022
mkdir -p "$D"/{run,munge,state,log,sshd,dev,shims,rt,spool/127.0.0.2,spool/127.0.0.3} /run/sshd
echo "$ACCOUNT" >"$D/account"

# 1. The account that owns the cluster's side. SkyPilot writes into its home.
useradd --create-home --home-dir "$D/home" --shell /bin/bash "$ACCOUNT"
usermod --password '*' "$ACCOUNT" # without a password sshd takes the account for locked
chmod 755 "$D/home"
chown "$ACCOUNT" "$D/rt"

# 2. munge, on a socket and with a key of its own.
head -c 1024 /dev/urandom >"$D/munge/munge.key"
chown -R munge: "$D/munge" "$D/run"
chmod 700 "$D/munge"
chmod 400 "$D/munge/munge.key"
runuser -u munge -- munged --force --key-file="$D/munge/munge.key" --socket="$D/run/munge.sock" \
  --pid-file="$D/run/munged.pid" --log-file="$D/munge/munged.log" \
  --seed-file="$D/munge/munged.seed"

# 3. Programs that come first on PATH inside jobs: SkyPilot's installer of uv without the internet.
install -m755 "$UV" "$D/shims/uv-real"
cat >"$D/shims/curl" <<S
#!/bin/bash
for a in "\$@"; do case "\$a" in
 https://astral.sh/uv/install.sh)
  cat <<'I'
#!/bin/sh
set -e
mkdir -p "\$UV_INSTALL_DIR"
cp $D/shims/uv-offline "\$UV_INSTALL_DIR/uv"
chmod 755 "\$UV_INSTALL_DIR/uv"
I
  exit 0;; esac; done
exec /usr/bin/curl "\$@"
S
cat >"$D/shims/uv-offline" <<S
#!/bin/bash
# uv of PyPI with the interpreter that is there: its own would come from GitHub.
args=(); for a in "\$@"; do [ "\$a" = 3.10 ] && a=${PYTHON:-/usr/bin/python3}; args+=("\$a"); done
export UV_PYTHON_DOWNLOADS=never
export SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt
exec $D/shims/uv-real "\${args[@]}"
S
cat >"$D/shims/nvidia-smi" <<'S'
#!/bin/sh
# Eight fit H100s, as the node's acceptance test asks for them.
for i in 0 1 2 3 4 5 6 7; do echo "$i, GPU-$i, NVIDIA H100 80GB HBM3, 4, 31, 0"; done
S
cat >"$D/task_prolog.sh" <<S
#!/bin/bash
echo "export PATH=$D/shims:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
echo "export HILLCLIMB_NODE_STAND_IN_GPUS=1"
S
chmod 755 "$D"/shims/* "$D/task_prolog.sh"

# 4. Two nodes whose names are addresses: SkyPilot resolves them. GPUs are links to /dev/null.
for i in 0 1 2 3 4 5 6 7; do ln -sfn /dev/null "$D/dev/nvidia$i"; done
cat >"$D/gres.conf" <<S
NodeName=127.0.0.2,127.0.0.3 Name=gpu Type=H100 File=$D/dev/nvidia[0-7]
S
SHAPE="CPUs=208 Boards=1 SocketsPerBoard=1 CoresPerSocket=208 ThreadsPerCore=1 RealMemory=1800000 Gres=gpu:H100:8"
cat >"$D/slurm.conf" <<S
ClusterName=$CLUSTER
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort=$PORT_CTLD
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CryptoType=crypto/munge
AuthInfo=socket=$D/run/munge.sock
StateSaveLocation=$D/state
SlurmdSpoolDir=$D/spool/%n
SlurmctldPidFile=$D/run/slurmctld.pid
SlurmdPidFile=$D/run/slurmd-%n.pid
SlurmctldLogFile=$D/log/slurmctld.log
SlurmdLogFile=$D/log/slurmd-%n.log
SwitchType=switch/none
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,sched_interval=1,bf_interval=1
ReturnToService=2
KillWait=30
MinJobAge=300
InactiveLimit=0
Waittime=0
GresTypes=gpu
TaskProlog=$D/task_prolog.sh
SlurmdParameters=config_overrides
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
NodeName=127.0.0.2 NodeHostname=localhost NodeAddr=127.0.0.1 Port=$PORT_NODE1 $SHAPE State=UNKNOWN
NodeName=127.0.0.3 NodeHostname=localhost NodeAddr=127.0.0.1 Port=$PORT_NODE2 $SHAPE State=UNKNOWN
PartitionName=gpus Nodes=127.0.0.2,127.0.0.3 Default=YES MaxTime=INFINITE State=UP
MailProg=/bin/true
S
slurmctld -c -f "$D/slurm.conf"
slurmd -f "$D/slurm.conf" -N 127.0.0.2
slurmd -f "$D/slurm.conf" -N 127.0.0.3

# 5. An sshd that gives the account this configuration of Slurm.
ssh-keygen -q -t ed25519 -N '' -f "$D/sshd/host_key"
ssh-keygen -q -t ed25519 -N '' -f "$D/sshd/user_key"
install -m644 "$D/sshd/user_key.pub" "$D/sshd/authorized_keys"
cat >"$D/sshd/sshd_config" <<S
Port $PORT_SSH
ListenAddress 127.0.0.1
HostKey $D/sshd/host_key
PidFile $D/run/sshd.pid
AuthorizedKeysFile $D/sshd/authorized_keys .ssh/authorized_keys
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
StrictModes no
MaxStartups 200:30:300
MaxSessions 200
PrintMotd no
Subsystem sftp internal-sftp
SetEnv SLURM_CONF=$D/slurm.conf
S
"$(command -v sshd)" -f "$D/sshd/sshd_config" -E "$D/log/sshd.log"

# 6. What the SkyPilot that rents here reads, with prices of its own.
OPERATOR=$D/operator
mkdir -m 700 "$OPERATOR" "$OPERATOR/.slurm" "$OPERATOR/.sky"
cat >"$OPERATOR/.slurm/config" <<S
Host $CLUSTER
  HostName 127.0.0.1
  Port $PORT_SSH
  User $ACCOUNT
  IdentityFile $D/sshd/user_key
S
cat >"$OPERATOR/.sky/config.yaml" <<S
allowed_clouds: [${CLOUDS:-slurm}]
slurm:
  allowed_clusters: [$CLUSTER]
  cluster_configs:
    $CLUSTER:
      tmpdir: $D/rt
      sbatch_options: {time: "01:00:00"}
      pricing: {cpu: 0.01, memory: 0.001, accelerators: {H100: 2.5}}
S

# 7. Both nodes are there.
for _ in $(seq 60); do
  [ "$(SLURM_CONF=$D/slurm.conf sinfo -h -N -o %T | grep -c '^idle$')" = 2 ] && exit 0
  sleep 0.5
done
SLURM_CONF=$D/slurm.conf sinfo -N
exit 1
