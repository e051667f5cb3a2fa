"""A virtual machine that has this machine's files, and a kernel with cgroup v2."""
