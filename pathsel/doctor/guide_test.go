package doctor_test

// guide is what a reader needs before the list of checks.
const guide = `## Running it

Run it in the container, as the user and with the environment of your programs: limits and settings are those of the
process that runs doctor. Root has no limit on locked memory, and sudo drops variables like NCCL_IB_GID_INDEX; only ACS
needs root.

    topoctl doctor                                       # this host, all checks
    topoctl doctor memlock registration-refused          # some checks, in full
    topoctl doctor --all                                 # also notes, what could not be made, what is ok
    topoctl doctor --from host.json                      # a host that was saved with topoctl discover
    topoctl doctor --peer node2.json mtu-peer            # the two ends of the lanes between two hosts
    topoctl doctor --gid-index 3 gid-index-wrong         # an index that a program will be configured to use
    topoctl doctor -o nagios port-down link-degraded     # for a monitoring system

The exit code is 0 if nothing is as bad as --fail-on (warning, if it is left out), 1 if something is, 2 if
doctor could not run, 3 if nothing is and facts could not be read. A check that could not be made is never ok;
it changes the exit code of -o nagios only, to 3 (UNKNOWN) if nothing is worse: name the checks that the monitoring is
about. -o tsv has a line for each check.

Only the running host can answer whether device files can be opened, whether memory can be registered with a device, and
the packet size in use. For that, doctor opens each RDMA device, registers 16 MiB with it and releases them; a device
that does not answer within 5 seconds is skipped and named.

## From an error to a check

| RDMA programs say | look at |
|---|---|
| no device, or none that can be used | uverbs-inaccessible, no-usable-port, port-down |
| opening a device fails: Permission denied | uverbs-inaccessible |
| ibv_reg_mr fails: Cannot allocate memory, Operation not permitted | memlock, registration-refused |
| ibv_reg_mr fails: Resource temporarily unavailable | registration-refused (the rdma cgroup) |
| registering GPU memory fails: Bad address | no-gdr-path |
| a queue pair does not go to RTR, a connection is never made | gid-index-wrong, gid-missing, gid-none-routable, pkey-mismatch |
| transport retry counter exceeded | port-down, gid-index-wrong, mtu-peer, mtu-active, mtu-mismatch |
| small transfers work, large ones hang or fail | mtu-peer, mtu-active, mtu-mismatch |
| it is slow | link-degraded, nic-slot-limited, acs-redirect, iommu-translate, gpu-without-near-nic, mtu-small |

`
