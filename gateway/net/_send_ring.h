/*
 * The sends of a batch in one call of the kernel, by io_uring where the kernel has it and allows it (a container's
 * seccomp profile and kernel.io_uring_disabled may forbid it). send_in_one_call() does none or some of them; what it
 * leaves its caller sends one by one.
 *
 * Only sends that do not wait are given to the kernel, so that each is done, or refused, when the call returns, and
 * nothing goes on behind it. That holds from Linux 5.18 on, whose IORING_SETUP_SUBMIT_ALL is asked for: earlier kernels
 * refuse to make the ring.
 */
#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#include "../built_from.h"

BUILT_FROM_THIS_FILE;

/* What is sent to one socket; fd -1: nothing. */
typedef struct {
    int fd;
    PyObject *data; /* bytes; a reference is held */
    ssize_t sent;   /* negative: refused */
} sending;

static void send_one(sending *one)
{
    one->sent = send(one->fd, PyBytes_AS_STRING(one->data), (size_t)PyBytes_GET_SIZE(one->data), MSG_DONTWAIT | MSG_NOSIGNAL);
}

#if defined(__has_include)
#if __has_include(<linux/io_uring.h>)
#include <linux/io_uring.h>
#endif
#endif

#if defined(IORING_SETUP_SUBMIT_ALL) && defined(SYS_io_uring_setup)

enum { ENTRIES = 128, FEWEST = 4 }; /* fewer are not cheaper than as many calls */
enum { UNTRIED, READY, REFUSED };

static struct {
    int state, fd, busy;
    unsigned *tail, *completed, *completions, mask, completion_mask;
    struct io_uring_sqe *entries;
    struct io_uring_cqe *results;
} ring;

/* The child of a fork has the parent's descriptor, but not its memory. */
static void forget_ring_of_parent(void)
{
    if (ring.state == READY) close(ring.fd);
    ring.state = UNTRIED;
    ring.busy = 0;
}

static int map_ring(int fd, const struct io_uring_params *made)
{
    size_t to_submit = made->sq_off.array + made->sq_entries * sizeof(unsigned);
    size_t done = made->cq_off.cqes + made->cq_entries * sizeof(struct io_uring_cqe);
    size_t length = to_submit > done ? to_submit : done, entries = made->sq_entries * sizeof(struct io_uring_sqe);
    int access = PROT_READ | PROT_WRITE, kind = MAP_SHARED | MAP_POPULATE;
    char *both = mmap(NULL, length, access, kind, fd, IORING_OFF_SQ_RING); /* IORING_FEAT_SINGLE_MMAP: since 5.4 */
    if (both == MAP_FAILED) return -1;
    ring.entries = mmap(NULL, entries, access, kind, fd, IORING_OFF_SQES);
    if (ring.entries == MAP_FAILED) {
        munmap(both, length);
        return -1;
    }
    unsigned *order = (unsigned *)(both + made->sq_off.array);
    for (unsigned at = 0; at < made->sq_entries; at++) order[at] = at;
    ring.tail = (unsigned *)(both + made->sq_off.tail);
    ring.mask = *(unsigned *)(both + made->sq_off.ring_mask);
    ring.completed = (unsigned *)(both + made->cq_off.head);
    ring.completions = (unsigned *)(both + made->cq_off.tail);
    ring.completion_mask = *(unsigned *)(both + made->cq_off.ring_mask);
    ring.results = (struct io_uring_cqe *)(both + made->cq_off.cqes);
    return 0;
}

static void make_ring(void)
{
    static int knows_forks;
    struct io_uring_params asked;
    memset(&asked, 0, sizeof asked);
    asked.flags = IORING_SETUP_SUBMIT_ALL;
    ring.state = REFUSED;
    if (!knows_forks && pthread_atfork(NULL, NULL, forget_ring_of_parent) != 0) return;
    knows_forks = 1;
    int fd = (int)syscall(SYS_io_uring_setup, ENTRIES, &asked);
    if (fd < 0) return;
    if (map_ring(fd, &asked) < 0) {
        close(fd);
        return;
    }
    ring.fd = fd;
    ring.state = READY;
}

/* Note what has become of sends: how many of them were done. */
static unsigned take_results(sending *all)
{
    unsigned at = *ring.completed, end = __atomic_load_n(ring.completions, __ATOMIC_ACQUIRE), count = end - at;
    for (; at != end; at++) {
        const struct io_uring_cqe *result = &ring.results[at & ring.completion_mask];
        all[result->user_data].sent = result->res;
    }
    __atomic_store_n(ring.completed, end, __ATOMIC_RELEASE);
    return count;
}

/* Hand over what was entered: how many the kernel took. It does as many as it takes, from the first on. */
static unsigned submit(sending *all, unsigned count)
{
    long taken = syscall(SYS_io_uring_enter, ring.fd, count, 0, 0, NULL, 0);
    unsigned submitted = taken > 0 ? (unsigned)taken : 0, done = take_results(all);
    while (done < submitted) { /* none that does not wait is done later; but its bytes may not be freed before it is */
        syscall(SYS_io_uring_enter, ring.fd, 0, 1, IORING_ENTER_GETEVENTS, NULL, 0);
        done += take_results(all);
    }
    return submitted;
}

static void enter(const sending *one, unsigned long at, unsigned tail)
{
    struct io_uring_sqe *entry = &ring.entries[tail & ring.mask];
    memset(entry, 0, sizeof *entry);
    entry->opcode = IORING_OP_SEND;
    entry->fd = one->fd;
    entry->addr = (unsigned long)PyBytes_AS_STRING(one->data);
    entry->len = (unsigned)PyBytes_GET_SIZE(one->data);
    entry->msg_flags = MSG_DONTWAIT | MSG_NOSIGNAL;
    entry->user_data = at;
}

/* Send from `from` on as many as there are entries; the place after the last that was sent, `from` if the ring does no more. */
static Py_ssize_t send_part(sending *all, Py_ssize_t from, Py_ssize_t count)
{
    unsigned tail = *ring.tail, entered = 0;
    Py_ssize_t at = from;
    for (; at < count && entered < ENTRIES; at++)
        if (all[at].fd >= 0) enter(&all[at], (unsigned long)at, tail + entered++);
    __atomic_store_n(ring.tail, tail + entered, __ATOMIC_RELEASE);
    unsigned submitted = submit(all, entered);
    if (submitted == entered) return at;
    /* What it did not take stays entered: the ring is not used again. */
    ring.state = REFUSED;
    close(ring.fd);
    for (at = from; submitted > 0; at++)
        if (all[at].fd >= 0) submitted--;
    return at;
}

/* The first so many were sent; the others are for the caller. Without the interpreter's lock. */
static Py_ssize_t send_in_one_call(sending *all, Py_ssize_t count)
{
    if (count < FEWEST || __atomic_exchange_n(&ring.busy, 1, __ATOMIC_ACQUIRE)) return 0;
    if (ring.state == UNTRIED) make_ring();
    Py_ssize_t done = 0;
    while (ring.state == READY && done < count) done = send_part(all, done, count);
    __atomic_store_n(&ring.busy, 0, __ATOMIC_RELEASE);
    return done;
}

/* Whether sends of a batch are one call: 0 where the kernel has no io_uring, or does not allow it. */
static int sends_in_one_call(void)
{
    if (__atomic_exchange_n(&ring.busy, 1, __ATOMIC_ACQUIRE)) return 1;
    if (ring.state == UNTRIED) make_ring();
    int ready = ring.state == READY;
    __atomic_store_n(&ring.busy, 0, __ATOMIC_RELEASE);
    return ready;
}

#else

static Py_ssize_t send_in_one_call(sending *all, Py_ssize_t count)
{
    (void)all, (void)count;
    return 0;
}

static int sends_in_one_call(void) { return 0; }

#endif
