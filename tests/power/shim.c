/* A recorder between a program and the C library, for LD_PRELOAD.
 *
 * Of the files below LANEWAY_POWER_ROOT it writes every change and every sync to
 * LANEWAY_POWER_LOG, in the order in which they happened, with the bytes written: what a power
 * failure could leave of them is worked out from that. LANEWAY_POWER_FAULT lets one of them fail:
 *
 *     KIND:N[+]:WHAT[:SUFFIX]      write:7:EIO      sync:3+:ENOSPC:-wal      write:5:full
 *
 * KIND is write, sync, truncate, unlink or shm (a write to the shared memory's file); N counts
 * from 1, and `+` means from then on; WHAT is EIO, ENOSPC, short (half is written), full (half is
 * written, then ENOSPC for ever), kill (the process dies before it) or delay=MS; SUFFIX limits it
 * to files whose name ends so.
 * LANEWAY_POWER_LIES=1 is a disk that forgets to sync: it says yes, and no sync is recorded.
 *
 * A file called `notes` in the root is the program's own voice: what it writes there is a record
 * among the others. `*-shm` is not recorded, since it is made anew after a power failure.
 * What changes a recorded file in a way that is not understood here is recorded as `?`.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { FILES = 1024 };
enum watch { NOTHING, RECORDED, NOTES, SHM };

/* Little-endian or not, the reader runs on the same machine. */
struct record {
    uint32_t magic;
    uint32_t kind;
    uint64_t inode;
    int64_t at;
    int32_t error;
    uint32_t name;
    uint64_t data;
};

static const uint32_t MAGIC = 0x4c504f57;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char root[PATH_MAX];
static size_t root_length;
static int log_file = -1;
static int lies;
/* What the processes that are forked from this one have in common. One at a time records. */
static struct {
    uint64_t recorded, seen;
    int full;
} *common;
static struct {
    enum watch watch;
    dev_t device;
    ino_t inode;
    char label[NAME_MAX + 1];
} files[FILES];

static struct {
    char kind[16];
    char suffix[64];
    uint64_t at;
    int onward, error, shortened, filling, killing, delay_ms;
} fault;

#define REAL(result, name, ...)                                                  \
    static result (*real_##name)(__VA_ARGS__);                                   \
    if (real_##name == NULL) real_##name = (result(*)(__VA_ARGS__))dlsym(RTLD_NEXT, #name)

static void put(const void *bytes, size_t length) {
    REAL(ssize_t, write, int, const void *, size_t);
    const char *from = bytes;
    while (length > 0) {
        ssize_t done = real_write(log_file, from, length);
        if (done < 0 && errno == EINTR) continue;
        if (done <= 0) abort(); /* a record with holes proves nothing */
        from += done;
        length -= (size_t)done;
    }
}

/* The caller holds the lock. errno is left alone. */
static void record(char kind, uint64_t inode, int64_t at, int error, const char *name,
                   const void *data, size_t length) {
    if (log_file < 0) return;
    int before = errno;
    struct record head = {MAGIC, (uint32_t)kind, inode, at, error,
                          (uint32_t)(name ? strlen(name) : 0), length};
    put(&head, sizeof head);
    if (name) put(name, head.name);
    if (length) put(data, length);
    common->recorded++;
    errno = before;
}

static void read_fault(const char *text) {
    memset(&fault, 0, sizeof fault);
    if (text == NULL || *text == 0) return;
    char what[32] = "", plus = 0;
    unsigned long long at = 0;
    int used = 0;
    if (sscanf(text, "%15[^:]:%llu%n", fault.kind, &at, &used) != 2) abort();
    text += used;
    if (*text == '+') plus = *text++;
    if (sscanf(text, ":%31[^:]:%63s", what, fault.suffix) < 1) abort();
    fault.at = at;
    fault.onward = plus == '+';
    if (strcmp(what, "EIO") == 0) fault.error = EIO;
    else if (strcmp(what, "ENOSPC") == 0) fault.error = ENOSPC;
    else if (strcmp(what, "short") == 0) fault.shortened = 1;
    else if (strcmp(what, "full") == 0) fault.filling = 1;
    else if (strcmp(what, "kill") == 0) fault.killing = 1;
    else if (sscanf(what, "delay=%d", &fault.delay_ms) != 1) abort();
}

/* Read the environment again: a child that was forked has another folder and another fault. */
void power_arm(void) {
    REAL(int, open, const char *, int, ...);
    const char *wanted = getenv("LANEWAY_POWER_ROOT"), *log = getenv("LANEWAY_POWER_LOG");
    if (wanted == NULL || log == NULL || realpath(wanted, root) == NULL) return;
    root_length = strlen(root);
    memset(files, 0, sizeof files);
    common = mmap(NULL, sizeof *common, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (common == MAP_FAILED) abort();
    lies = getenv("LANEWAY_POWER_LIES") != NULL;
    read_fault(getenv("LANEWAY_POWER_FAULT"));
    log_file = real_open(log, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0600);
    if (log_file < 0) abort();
}

__attribute__((constructor)) static void begin(void) { power_arm(); }

/* The path below the root, "" for the root itself, NULL for one outside. */
static const char *below(const char *path) {
    if (root_length == 0 || strncmp(path, root, root_length) != 0) return NULL;
    if (path[root_length] == 0) return path + root_length;
    return path[root_length] == '/' ? path + root_length + 1 : NULL;
}

static int ends_with(const char *text, const char *end) {
    size_t length = strlen(text), tail = strlen(end);
    return length >= tail && strcmp(text + length - tail, end) == 0;
}

static enum watch watched(const char *name) {
    if (name == NULL) return NOTHING;
    if (strcmp(name, "notes") == 0) return NOTES;
    return ends_with(name, "-shm") ? SHM : RECORDED;
}

/* Where a name given to a call leads, symbolic links in it not followed. */
static const char *resolve(int folder, const char *path, char *room) {
    char base[PATH_MAX];
    if (path[0] == '/') return below(path);
    if (folder == AT_FDCWD) {
        if (getcwd(base, sizeof base) == NULL) return NULL;
    } else {
        char link[64];
        snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
        ssize_t length = readlink(link, base, sizeof base - 1);
        if (length < 0) return NULL;
        base[length] = 0;
    }
    if (snprintf(room, PATH_MAX, "%s/%s", base, path) >= PATH_MAX) return NULL;
    return below(room);
}

/* What is known of an open file, if it still is the one that was opened under this number. */
static enum watch known(int file, struct stat *now) {
    int before = errno;
    enum watch found = NOTHING;
    if (file >= 0 && file < FILES && files[file].watch != NOTHING) {
        if (fstat(file, now) == 0 && now->st_dev == files[file].device &&
            now->st_ino == files[file].inode)
            found = files[file].watch;
        else
            files[file].watch = NOTHING;
    }
    errno = before;
    return found;
}

/* Whether this one is to fail. A delay is slept through with the lock released. */
static int strikes(const char *kind, const char *name) {
    if (log_file < 0 || strcmp(kind, fault.kind) != 0 || !ends_with(name, fault.suffix)) return 0;
    uint64_t now = ++common->seen;
    if (now != fault.at && !(now > fault.at && (fault.onward || fault.filling))) return 0;
    record('!', 0, (int64_t)now, fault.error, name, kind, strlen(kind));
    if (fault.delay_ms) {
        struct timespec rest = {fault.delay_ms / 1000, fault.delay_ms % 1000 * 1000000L};
        pthread_mutex_unlock(&lock);
        nanosleep(&rest, NULL);
        pthread_mutex_lock(&lock);
        return 0;
    }
    if (fault.killing) kill(getpid(), SIGKILL);
    if (common->full) fault.error = ENOSPC;
    common->full = fault.filling;
    return 1;
}

static int opened(int file, int existed, int flags) {
    if (file < 0 || file >= FILES) return file;
    int before = errno;
    char link[64], path[PATH_MAX];
    struct stat now;
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, path, sizeof path - 1);
    files[file].watch = NOTHING;
    if (length > 0 && fstat(file, &now) == 0) {
        path[length] = 0;
        const char *name = below(path);
        enum watch found = watched(name);
        if (found != NOTHING && strlen(name) <= NAME_MAX) {
            files[file].watch = found;
            files[file].device = now.st_dev;
            files[file].inode = now.st_ino;
            strcpy(files[file].label, name);
            if (found == RECORDED && !S_ISDIR(now.st_mode)) {
                if (!existed) record('C', now.st_ino, 0, 0, name, NULL, 0);
                else if (flags & O_TRUNC) record('T', now.st_ino, 0, 0, name, NULL, 0);
            }
        }
    }
    errno = before;
    return file;
}

#define OPENING(name)                                                            \
    int name(const char *path, int flags, ...) {                                 \
        REAL(int, name, const char *, int, ...);                                 \
        va_list more;                                                            \
        va_start(more, flags);                                                   \
        mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(more, mode_t) : 0;  \
        va_end(more);                                                            \
        pthread_mutex_lock(&lock);                                               \
        int existed = !(flags & O_CREAT) || access(path, F_OK) == 0;             \
        int file = opened(real_##name(path, flags, mode), existed, flags);       \
        pthread_mutex_unlock(&lock);                                             \
        return file;                                                             \
    }

#define OPENING_AT(name)                                                         \
    int name(int folder, const char *path, int flags, ...) {                     \
        REAL(int, name, int, const char *, int, ...);                            \
        va_list more;                                                            \
        va_start(more, flags);                                                   \
        mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(more, mode_t) : 0;  \
        va_end(more);                                                            \
        pthread_mutex_lock(&lock);                                               \
        int existed = !(flags & O_CREAT) || faccessat(folder, path, F_OK, 0) == 0; \
        int file = opened(real_##name(folder, path, flags, mode), existed, flags); \
        pthread_mutex_unlock(&lock);                                             \
        return file;                                                             \
    }

int close(int file) {
    REAL(int, close, int);
    pthread_mutex_lock(&lock);
    if (file >= 0 && file < FILES) files[file].watch = NOTHING;
    pthread_mutex_unlock(&lock);
    return real_close(file);
}

/* How much may be written: all, half, or nothing (and errno says why). */
static ssize_t allowed(enum watch watch, int file, size_t length) {
    if (watch == NOTES || !strikes(watch == SHM ? "shm" : "write", files[file].label))
        return (ssize_t)length;
    if (fault.error == 0 && (fault.shortened || fault.filling) && length > 1)
        return (ssize_t)(length / 2);
    errno = fault.error ? fault.error : ENOSPC;
    return -1;
}

static void wrote(enum watch watch, int file, struct stat *now, int64_t at, const void *data,
                  ssize_t length) {
    if (watch == NOTES) record('N', 0, at, 0, NULL, data, (size_t)length);
    else if (watch == RECORDED)
        record('W', now->st_ino, at, 0, files[file].label, data, (size_t)length);
}

ssize_t write(int file, const void *data, size_t length) {
    REAL(ssize_t, write, int, const void *, size_t);
    if (file < 0 || file >= FILES || files[file].watch == NOTHING || length == 0)
        return real_write(file, data, length);
    struct stat now;
    pthread_mutex_lock(&lock);
    enum watch watch = known(file, &now);
    ssize_t done = watch == NOTHING ? (ssize_t)length : allowed(watch, file, length);
    if (done > 0) {
        int64_t at = lseek(file, 0, SEEK_CUR);
        if (fcntl(file, F_GETFL) & O_APPEND) at = now.st_size;
        done = real_write(file, data, (size_t)done);
        if (done > 0) wrote(watch, file, &now, at, data, done);
    }
    pthread_mutex_unlock(&lock);
    return done;
}

#define WRITING_AT(name, offset_type)                                            \
    ssize_t name(int file, const void *data, size_t length, offset_type at) {    \
        REAL(ssize_t, name, int, const void *, size_t, offset_type);             \
        if (file < 0 || file >= FILES || files[file].watch == NOTHING || length == 0) \
            return real_##name(file, data, length, at);                          \
        struct stat now;                                                         \
        pthread_mutex_lock(&lock);                                               \
        enum watch watch = known(file, &now);                                    \
        ssize_t done = watch == NOTHING ? (ssize_t)length : allowed(watch, file, length); \
        if (done > 0) {                                                          \
            done = real_##name(file, data, (size_t)done, at);                    \
            if (done > 0) wrote(watch, file, &now, at, data, done);              \
        }                                                                        \
        pthread_mutex_unlock(&lock);                                             \
        return done;                                                             \
    }

#define TRUNCATING(name, offset_type)                                            \
    int name(int file, offset_type length) {                                     \
        REAL(int, name, int, offset_type);                                       \
        struct stat now;                                                         \
        pthread_mutex_lock(&lock);                                               \
        enum watch watch = known(file, &now);                                    \
        int done = -1;                                                           \
        if (watch == RECORDED && strikes("truncate", files[file].label))          \
            errno = fault.error ? fault.error : EIO;                             \
        else                                                                     \
            done = real_##name(file, length);                                    \
        if (done == 0 && watch == RECORDED)                                      \
            record('T', now.st_ino, (int64_t)length, 0, files[file].label, NULL, 0); \
        pthread_mutex_unlock(&lock);                                             \
        return done;                                                             \
    }

/* A sync covers what was recorded before it began: a delayed one no more than that. */
#define SYNCING(name)                                                            \
    int name(int file) {                                                         \
        REAL(int, name, int);                                                    \
        struct stat now;                                                         \
        pthread_mutex_lock(&lock);                                               \
        enum watch watch = known(file, &now);                                    \
        if (watch != RECORDED) {                                                 \
            pthread_mutex_unlock(&lock);                                         \
            return real_##name(file);                                            \
        }                                                                        \
        int64_t since = (int64_t)common->recorded;                                       \
        int done = 0;                                                            \
        if (strikes("sync", files[file].label)) {                                 \
            errno = fault.error ? fault.error : EIO;                             \
            done = -1;                                                           \
        } else if (!lies) {                                                      \
            done = real_##name(file);                                            \
        }                                                                        \
        if (!lies)                                                               \
            record(S_ISDIR(now.st_mode) ? 'D' : 'S', now.st_ino, since, done ? errno : 0, \
                   files[file].label, NULL, 0);                                   \
        pthread_mutex_unlock(&lock);                                             \
        return done;                                                             \
    }

/* What happens to names: deleted, made a folder, moved, linked. The lock is held. */
static int named(int done, char kind, const char *name, const char *second) {
    if (done != 0) return done;
    struct stat now = {0};
    char path[2 * PATH_MAX];
    const char *at = second ? second : name;
    if (kind != 'U' && at) {
        snprintf(path, sizeof path, "%s/%s", root, at);
        if (lstat(path, &now) != 0) abort();
    }
    if (watched(name) == RECORDED || watched(second) == RECORDED)
        record(name && (second || kind == 'U' || kind == 'M') ? kind : '?', now.st_ino, 0, 0,
               name, second, second ? strlen(second) : 0);
    return done;
}

static int doomed(const char *name) {
    if (watched(name) != RECORDED || !strikes("unlink", name)) return 0;
    errno = fault.error ? fault.error : EIO;
    return 1;
}

int unlinkat(int folder, const char *path, int flags) {
    REAL(int, unlinkat, int, const char *, int);
    char room[PATH_MAX];
    pthread_mutex_lock(&lock);
    const char *name = resolve(folder, path, room);
    int done = doomed(name) ? -1 : named(real_unlinkat(folder, path, flags), 'U', name, NULL);
    pthread_mutex_unlock(&lock);
    return done;
}
int unlink(const char *path) { return unlinkat(AT_FDCWD, path, 0); }
int rmdir(const char *path) { return unlinkat(AT_FDCWD, path, AT_REMOVEDIR); }

int mkdirat(int folder, const char *path, mode_t mode) {
    REAL(int, mkdirat, int, const char *, mode_t);
    char room[PATH_MAX];
    pthread_mutex_lock(&lock);
    int done = named(real_mkdirat(folder, path, mode), 'M', resolve(folder, path, room), NULL);
    pthread_mutex_unlock(&lock);
    return done;
}
int mkdir(const char *path, mode_t mode) { return mkdirat(AT_FDCWD, path, mode); }

#define MOVING(call, kind, parameters, arguments)                                \
    {                                                                            \
        REAL(int, call, int, const char *, int, const char * parameters);        \
        char room[PATH_MAX], other[PATH_MAX];                                    \
        pthread_mutex_lock(&lock);                                               \
        const char *name = resolve(from, path, room), *second = resolve(to, target, other); \
        int done = named(real_##call(from, path, to, target arguments), kind, name, second); \
        pthread_mutex_unlock(&lock);                                             \
        return done;                                                             \
    }
#define COMMA ,
int renameat(int from, const char *path, int to, const char *target) MOVING(renameat, 'R', , )
int linkat(int from, const char *path, int to, const char *target, int flags)
    MOVING(linkat, 'L', COMMA int, COMMA flags)
int rename(const char *path, const char *target) {
    return renameat(AT_FDCWD, path, AT_FDCWD, target);
}
int link(const char *path, const char *target) {
    return linkat(AT_FDCWD, path, AT_FDCWD, target, 0);
}

/* What would change a recorded file unseen: the reader refuses a record that holds one. */
static void unseen(int file, const char *how) {
    struct stat now;
    pthread_mutex_lock(&lock);
    if (known(file, &now) == RECORDED)
        record('?', now.st_ino, 0, 0, files[file].label, how, strlen(how));
    pthread_mutex_unlock(&lock);
}
ssize_t writev(int file, const struct iovec *parts, int count) {
    REAL(ssize_t, writev, int, const struct iovec *, int);
    unseen(file, "writev");
    return real_writev(file, parts, count);
}

OPENING(open)
OPENING_AT(openat)
WRITING_AT(pwrite, off_t)
TRUNCATING(ftruncate, off_t)
SYNCING(fsync)
SYNCING(fdatasync)

#define UNSEEN(result, name, file, parameters, ...)                              \
    result name parameters {                                                     \
        static result(*real) parameters;                                         \
        if (real == NULL) real = (result(*) parameters)dlsym(RTLD_NEXT, #name);  \
        unseen(file, #name);                                                     \
        return real(__VA_ARGS__);                                                \
    }
UNSEEN(int, fallocate, file, (int file, int mode, off_t at, off_t length), file, mode, at, length)
UNSEEN(int, posix_fallocate, file, (int file, off_t at, off_t length), file, at, length)

static void mapped(int file, int protection, int flags) {
    if (log_file >= 0 && flags & MAP_SHARED && protection & PROT_WRITE) unseen(file, "mmap");
}
void *mmap(void *at, size_t length, int protection, int flags, int file, off_t from) {
    static void *(*real)(void *, size_t, int, int, int, off_t);
    if (real == NULL) real = (void *(*)(void *, size_t, int, int, int, off_t))dlsym(RTLD_NEXT, "mmap");
    mapped(file, protection, flags);
    return real(at, length, protection, flags, file, from);
}

#ifdef __GLIBC__ /* elsewhere the names with 64 are the same functions */
OPENING(open64)
OPENING_AT(openat64)
WRITING_AT(pwrite64, off64_t)
TRUNCATING(ftruncate64, off64_t)
UNSEEN(ssize_t, sendfile64, file, (int file, int from, off64_t *at, size_t length), file, from, at,
       length)
UNSEEN(ssize_t, copy_file_range, file,
       (int from, off64_t *at, int file, off64_t *to, size_t length, unsigned flags), from, at, file,
       to, length, flags)
UNSEEN(int, fallocate64, file, (int file, int mode, off64_t at, off64_t length), file, mode, at,
       length)
UNSEEN(int, posix_fallocate64, file, (int file, off64_t at, off64_t length), file, at, length)
UNSEEN(ssize_t, pwritev64v2, file,
       (int file, const struct iovec *parts, int count, off64_t at, int flags), file, parts, count,
       at, flags)
void *mmap64(void *at, size_t length, int protection, int flags, int file, off64_t from) {
    static void *(*real)(void *, size_t, int, int, int, off64_t);
    if (real == NULL)
        real = (void *(*)(void *, size_t, int, int, int, off64_t))dlsym(RTLD_NEXT, "mmap64");
    mapped(file, protection, flags);
    return real(at, length, protection, flags, file, from);
}
#endif
