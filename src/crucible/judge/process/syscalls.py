"""Numbers of the system calls that the filter knows, on x86-64 and on aarch64.

None: that architecture has no such call. A test compares them with the headers of the machine it runs on.
Source: arch/x86/entry/syscalls/syscall_64.tbl and include/uapi/asm-generic/unistd.h of Linux 6.18.
"""

from __future__ import annotations

import platform

Number = int | None
X86_64, AARCH64 = 0xC000003E, 0xC00000B7
"""As the audit subsystem calls the two (linux/audit.h)."""
NEWEST = 469
"""The last call of Linux 6.18, file_setattr. What later kernels add is nothing that this file can judge."""

NUMBERS: dict[str, tuple[Number, Number]] = {
    # sockets
    "socket": (41, 198), "connect": (42, 203), "accept": (43, 202), "accept4": (288, 242), "socketpair": (53, 199),
    "bind": (49, 200), "listen": (50, 201),
    # modes, owners, times
    "chmod": (90, None), "fchmod": (91, 52), "fchmodat": (268, 53), "fchmodat2": (452, 452),
    "chown": (92, None), "fchown": (93, 55), "lchown": (94, None), "fchownat": (260, 54),
    "utime": (132, None), "utimes": (235, None), "futimesat": (261, None), "utimensat": (280, 88),
    # extended attributes and flags
    "setxattr": (188, 5), "lsetxattr": (189, 6), "fsetxattr": (190, 7), "setxattrat": (463, 463),
    "removexattr": (197, 14), "lremovexattr": (198, 15), "fremovexattr": (199, 16), "removexattrat": (466, 466),
    "file_setattr": (469, 469), "ioctl": (16, 29), "fcntl": (72, 25),
    # other processes
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "kcmp": (312, 272),
    "process_madvise": (440, 440), "process_mrelease": (448, 448), "pidfd_getfd": (438, 438), "kill": (62, 129),
    "prlimit64": (302, 261), "sched_setaffinity": (203, 122), "sched_setscheduler": (144, 119),
    "sched_setparam": (142, 118), "sched_setattr": (314, 274), "setpriority": (141, 140), "ioprio_set": (251, 30),
    "migrate_pages": (256, 238), "move_pages": (279, 239),
    # what outlives a process
    "shmget": (29, 194), "shmat": (30, 196), "shmctl": (31, 195), "semget": (64, 190), "semop": (65, 193),
    "semtimedop": (220, 192), "semctl": (66, 191), "msgget": (68, 186), "msgsnd": (69, 189), "msgrcv": (70, 188),
    "msgctl": (71, 187), "mq_open": (240, 180), "mq_unlink": (241, 181),
    "add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219),
    # large parts of the kernel that no candidate needs
    "bpf": (321, 280), "perf_event_open": (298, 241), "userfaultfd": (323, 282), "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426), "io_uring_register": (427, 427), "fanotify_init": (300, 262),
    "fanotify_mark": (301, 263), "personality": (135, 92), "modify_ldt": (154, None),
    # namespaces and mounts
    "clone": (56, 220), "clone3": (435, 435), "unshare": (272, 97), "setns": (308, 268), "mount": (165, 40),
    "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51), "fsopen": (430, 430), "fsconfig": (431, 431),
    "fsmount": (432, 432), "fspick": (433, 433), "move_mount": (429, 429), "open_tree": (428, 428),
    "open_tree_attr": (467, 467), "mount_setattr": (442, 442), "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    # the machine
    "quotactl": (179, 60), "quotactl_fd": (443, 443), "swapon": (167, 224), "swapoff": (168, 225),
    "reboot": (169, 142), "kexec_load": (246, 104), "kexec_file_load": (320, 294), "init_module": (175, 105),
    "finit_module": (313, 273), "delete_module": (176, 106), "acct": (163, 89), "settimeofday": (164, 170),
    "clock_settime": (227, 112), "sethostname": (170, 161), "setdomainname": (171, 162), "syslog": (103, 116),
    "vhangup": (153, 58), "iopl": (172, None), "ioperm": (173, None), "lookup_dcookie": (212, 18),
    "uselib": (134, None), "_sysctl": (156, None),
    # the filter itself
    "seccomp": (317, 277),
}  # fmt: skip


def architecture() -> int | None:
    """This machine's, by its audit number; None where the numbers are not known."""
    return {"x86_64": X86_64, "aarch64": AARCH64}.get(platform.machine())


def number(name: str, of: int) -> Number:
    """A call's number on an architecture."""
    return NUMBERS[name][0 if of == X86_64 else 1]
