#!/usr/bin/env bash
# Gives a tree to slurmctld and prints what scontrol says of it: slurm.sh TOOLS DIR, DIR having topology.conf. It runs
# in a network namespace of its own (unshare -n), as root.
set -euo pipefail
tools=$1 dir=$2
lib=$(echo "$tools"/usr/lib/*-linux-gnu)
export LD_LIBRARY_PATH=$lib:$lib/slurm-wlm SLURM_CONF=$dir/slurm.conf
ip link set lo up
ip addr add 192.0.2.1/24 dev lo # Slurm resolves nothing on a host that has no address but loopback's
mkdir -p "$dir/state"
cat >"$SLURM_CONF" <<CONF
ClusterName=test
SlurmctldHost=$(hostname)(127.0.0.1)
AuthType=auth/none
CredType=cred/none
PluginDir=$lib/slurm-wlm
StateSaveLocation=$dir/state
SlurmctldPidFile=$dir/pid
SlurmUser=root
TopologyPlugin=topology/tree
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
NodeName=$3 NodeAddr=127.0.0.1 CPUs=1
PartitionName=all Nodes=ALL Default=YES
CONF
"$tools/usr/sbin/slurmctld-wlm" -D -c -f "$SLURM_CONF" >"$dir/log" 2>&1 &
trap 'kill $(jobs -p) 2>/dev/null; wait' EXIT
for _ in $(seq 120); do
	if "$tools/usr/bin/scontrol" show topology 2>/dev/null; then exit 0; fi
	sleep 0.5
done
tail -n 20 "$dir/log" >&2
exit 1
