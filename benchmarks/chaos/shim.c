/* A disk and a clock that fail, for one process: preloaded, told what to do through a small shared file.
 *
 * The files below one directory are guarded. What is written to them goes to the real file system at once, so the process
 * reads what it wrote. Beside it, in another directory, stands what a power loss has to put back:
 *
 *   data-<inode>   a header with the place at which the undone part begins, then for each write, cut or growth since the
 *                  last sync the bytes and the length that were there before. A sync moves the beginning to where the
 *                  file ended when the sync began, so what is written during a sync stays undone.
 *   names          the same for creations, renames, links and removals, in their order. A sync of a directory moves the
 *                  beginning behind the last record that is about it: a file system's journal keeps its order. A sync of
 *                  a file makes no name durable.
 *   saved-<n>      a second link to a file that was removed or replaced, for as long as that is not durable.
 *
 * `power_loss.py` reads these files after the process was killed. They survive a kill alone, as a page cache does: the
 * next life of the process goes on with them.
 *
 * Invariant: the record is written before the change that it undoes. A record that a kill has cut short stands for a
 * change that was never made.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

struct control {
    int64_t clock_offset_ns;
    int64_t sync_delay_ns;
    int32_t sync_errno;
    int32_t write_errno;
    int64_t failed_sync_count;
    int64_t refused_write_count;
    int64_t sync_count;
};

struct data_record {
    uint64_t offset, length, size_before; /* then `length` bytes */
};

struct name_record {
    uint32_t kind, saved, path_length, other_length; /* then path and other, without a zero at their ends */
    uint64_t directory, other_directory;
};

enum { CREATED = 1, RENAMED, REMOVED, DIRECTORY_MADE, DIRECTORY_REMOVED, LINKED };

#define HEADER 16
#define FILES 4096
#define NAMES 65536
#define LONGEST 4096

static struct control nothing, *control = &nothing;
static char guarded[LONGEST], undo[LONGEST];
static size_t guarded_length;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct { ino_t inode; int handle; } files[FILES];
static int file_count;
static struct { uint64_t end, directory, other_directory; uint32_t saved; } names[NAMES];
static int name_count, names_handle = -1;
static uint32_t saved_count;

#define REAL(type, name, ...) \
    static type (*real)(__VA_ARGS__); \
    if (!real) real = dlsym(RTLD_NEXT, #name)

static int raw_open(const char *path, int flags, int mode) { return syscall(SYS_openat, AT_FDCWD, path, flags, mode); }
static void raw_close(int handle) { syscall(SYS_close, handle); }

static void give_up(const char *what) {
    dprintf(2, "chaos shim: %s: errno=%d\n", what, errno);
    abort(); /* an untrue disk would make every later finding untrue */
}

static void write_all(int handle, const void *data, size_t length, off_t offset) {
    while (length) {
        ssize_t written = syscall(SYS_pwrite64, handle, data, length, offset);
        if (written <= 0) give_up("undo not written");
        data = (const char *)data + written, length -= written, offset += written;
    }
}

static off_t length_of(int handle) {
    struct stat found;
    if (fstat(handle, &found)) give_up("fstat");
    return found.st_size;
}

static void undo_path(char *path, const char *format, unsigned long number) {
    int length = snprintf(path, LONGEST, "%s/", undo);
    snprintf(path + length, LONGEST - length, format, number);
}

static int open_undo(const char *name, unsigned long number) {
    char path[LONGEST];
    undo_path(path, name, number);
    int handle = raw_open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (handle < 0) give_up("undo not opened");
    if (length_of(handle) < HEADER) {
        uint64_t header[2] = {HEADER, 0};
        write_all(handle, header, HEADER, 0);
    }
    return handle;
}

static uint64_t begin_of(int handle) {
    uint64_t begin;
    if (syscall(SYS_pread64, handle, &begin, 8, 0) != 8) give_up("undo not read");
    return begin;
}

/* Everything before `end` is durable. */
static void commit(int handle, uint64_t end) {
    if (end <= begin_of(handle)) return;
    if (end >= (uint64_t)length_of(handle)) {
        if (syscall(SYS_ftruncate, handle, HEADER)) give_up("undo not cut"); /* a beginning beyond the end: nothing */
        end = HEADER;
    }
    write_all(handle, &end, 8, 0);
}

static void remember_name(uint64_t end, const struct name_record *record) {
    if (name_count == NAMES) give_up("too many names");
    names[name_count].end = end;
    names[name_count].directory = record->directory;
    names[name_count].other_directory = record->other_directory;
    names[name_count++].saved = record->saved;
    if (record->saved > saved_count) saved_count = record->saved;
}

static void load_names(void) {
    uint64_t at = begin_of(names_handle), end = length_of(names_handle);
    struct name_record record;
    while (at + sizeof record <= end && syscall(SYS_pread64, names_handle, &record, sizeof record, at) == sizeof record) {
        at += sizeof record + record.path_length + record.other_length;
        if (at > end) break;
        remember_name(at, &record);
    }
}

/* A process that was forked from one with this library calls it again, with variables of its own. */
__attribute__((constructor)) void chaos_shim_start(void) {
    const char *path = getenv("CHAOS_SHIM_CONTROL");
    if (!path) return;
    int handle = raw_open(path, O_RDWR | O_CLOEXEC, 0);
    if (handle < 0) give_up("control not opened");
    control = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, handle, 0);
    if (control == MAP_FAILED) give_up("control not mapped");
    raw_close(handle);
    snprintf(guarded, sizeof guarded, "%s", getenv("CHAOS_SHIM_DIRECTORY"));
    snprintf(undo, sizeof undo, "%s", getenv("CHAOS_SHIM_UNDO"));
    guarded_length = strlen(guarded);
    names_handle = open_undo("names", 0);
    load_names();
    unsetenv("LD_PRELOAD"); /* whatever the process starts is not its disk */
}

static int is_guarded(const char *path) {
    return guarded_length && !strncmp(path, guarded, guarded_length) &&
           (!path[guarded_length] || path[guarded_length] == '/');
}

static int absolute(int directory, const char *path, char *out) {
    if (path[0] == '/') return snprintf(out, LONGEST, "%s", path) < LONGEST;
    char link[64];
    if (directory == AT_FDCWD) snprintf(link, sizeof link, "/proc/self/cwd");
    else snprintf(link, sizeof link, "/proc/self/fd/%d", directory);
    ssize_t length = readlink(link, out, LONGEST - 1);
    if (length < 0) return 0;
    return snprintf(out + length, LONGEST - length, "/%s", path) < LONGEST - (int)length;
}

static uint64_t directory_inode(const char *path) {
    char parent[LONGEST];
    snprintf(parent, sizeof parent, "%s", path);
    char *slash = strrchr(parent, '/');
    if (slash) *(slash == parent ? slash + 1 : slash) = 0;
    struct stat found;
    return stat(parent, &found) ? 0 : found.st_ino;
}

/* Keep a second link to what a path names; 0 if there is nothing to keep. */
static uint32_t save(const char *path) {
    struct stat found;
    if (lstat(path, &found) || !S_ISREG(found.st_mode)) return 0;
    char saved[LONGEST];
    undo_path(saved, "saved-%lu", ++saved_count);
    syscall(SYS_unlinkat, AT_FDCWD, saved, 0); /* a kill may have left one without a record */
    if (syscall(SYS_linkat, AT_FDCWD, path, AT_FDCWD, saved, 0)) give_up("not saved");
    return saved_count;
}

static void note_name(uint32_t kind, const char *path, const char *other, uint32_t saved) {
    char buffer[sizeof(struct name_record) + 2 * LONGEST];
    struct name_record record = {kind, saved, strlen(path), other ? strlen(other) : 0, directory_inode(path),
                                 other ? directory_inode(other) : 0};
    memcpy(buffer, &record, sizeof record);
    memcpy(buffer + sizeof record, path, record.path_length);
    if (other) memcpy(buffer + sizeof record + record.path_length, other, record.other_length);
    uint64_t at = length_of(names_handle), length = sizeof record + record.path_length + record.other_length;
    if (!name_count) {
        uint64_t begin = HEADER;
        if (syscall(SYS_ftruncate, names_handle, HEADER)) give_up("names not cut");
        write_all(names_handle, &begin, 8, 0);
        at = HEADER;
    }
    write_all(names_handle, buffer, length, at);
    remember_name(at + length, &record);
}

static void sync_names(uint64_t directory) {
    int last = -1;
    for (int i = 0; i < name_count; i++)
        if (names[i].directory == directory || names[i].other_directory == directory) last = i;
    if (last < 0) return;
    commit(names_handle, names[last].end);
    for (int i = 0; i <= last; i++)
        if (names[i].saved) {
            char path[LONGEST];
            struct stat found;
            undo_path(path, "saved-%lu", names[i].saved);
            if (!stat(path, &found) && found.st_nlink == 1) { /* gone for good, and its number is free again */
                char data[LONGEST];
                undo_path(data, "data-%lu", found.st_ino);
                for (int k = 0; k < file_count; k++)
                    if (files[k].inode == found.st_ino) {
                        raw_close(files[k].handle);
                        files[k] = files[--file_count];
                        break;
                    }
                syscall(SYS_unlinkat, AT_FDCWD, data, 0);
            }
            syscall(SYS_unlinkat, AT_FDCWD, path, 0);
        }
    memmove(names, names + last + 1, (name_count - last - 1) * sizeof names[0]);
    name_count -= last + 1;
}

static int data_handle(ino_t inode) {
    for (int i = 0; i < file_count; i++)
        if (files[i].inode == inode) return files[i].handle;
    if (file_count == FILES) give_up("too many files");
    files[file_count].inode = inode;
    files[file_count].handle = open_undo("data-%lu", inode);
    return files[file_count++].handle;
}

/* Whether a handle is a guarded file; what it is goes to `found`. */
static int is_guarded_file(int handle, struct stat *found) {
    if (!guarded_length || fstat(handle, found) || !S_ISREG(found->st_mode)) return 0;
    char link[64], path[LONGEST];
    snprintf(link, sizeof link, "/proc/self/fd/%d", handle);
    ssize_t length = readlink(link, path, LONGEST - 1);
    if (length <= 0) return 0;
    path[length] = 0;
    return is_guarded(path);
}

/* Keep [offset, offset + length) as it is, and the length of the file. */
static void note_data(int handle, const struct stat *found, uint64_t offset, uint64_t length) {
    struct data_record record = {offset, 0, found->st_size};
    if (offset < record.size_before) {
        record.length = record.size_before - offset;
        if (record.length > length) record.length = length;
    }
    char *buffer = malloc(sizeof record + record.length);
    if (!buffer) give_up("no memory");
    memcpy(buffer, &record, sizeof record);
    int reader = handle;
    if ((fcntl(handle, F_GETFL) & O_ACCMODE) == O_WRONLY) {
        char link[64];
        snprintf(link, sizeof link, "/proc/self/fd/%d", handle);
        reader = raw_open(link, O_RDONLY | O_CLOEXEC, 0);
        if (reader < 0) give_up("not opened to be read");
    }
    for (uint64_t got = 0; got < record.length;) {
        ssize_t more = syscall(SYS_pread64, reader, buffer + sizeof record + got, record.length - got, offset + got);
        if (more <= 0) give_up("old bytes not read");
        got += more;
    }
    if (reader != handle) raw_close(reader);
    int kept = data_handle(found->st_ino);
    off_t at = length_of(kept);
    write_all(kept, buffer, sizeof record + record.length, at < HEADER ? HEADER : at);
    free(buffer);
}

static int refuses(void) {
    if (!control->write_errno) return 0;
    __atomic_add_fetch(&control->refused_write_count, 1, __ATOMIC_RELAXED);
    errno = control->write_errno;
    return 1;
}

/* --- files: opening, writing, cutting */

static int open_guarded(int directory, const char *path, int flags, mode_t mode) {
    char full[LONGEST];
    if (!(flags & (O_CREAT | O_TRUNC)) || !absolute(directory, path, full) || !is_guarded(full))
        return syscall(SYS_openat, directory, path, flags, mode);
    struct stat found;
    pthread_mutex_lock(&lock);
    int is_there = !stat(full, &found), handle = -1;
    if (is_there || !(flags & O_CREAT) || !refuses()) {
        if (!is_there && flags & O_CREAT) note_name(CREATED, full, NULL, 0);
        if (is_there && flags & O_TRUNC && S_ISREG(found.st_mode)) {
            int reader = raw_open(full, O_RDONLY | O_CLOEXEC, 0);
            if (reader >= 0) {
                note_data(reader, &found, 0, found.st_size);
                raw_close(reader);
            }
        }
        handle = syscall(SYS_openat, directory, path, flags, mode);
    }
    int error = errno;
    pthread_mutex_unlock(&lock);
    errno = error;
    return handle;
}

#define MODE(flags) \
    mode_t mode = 0; \
    if (flags & (O_CREAT | O_TMPFILE)) { \
        va_list rest; \
        va_start(rest, flags); \
        mode = va_arg(rest, mode_t); \
        va_end(rest); \
    }

int open(const char *path, int flags, ...) { MODE(flags) return open_guarded(AT_FDCWD, path, flags, mode); }
int open64(const char *path, int flags, ...) { MODE(flags) return open_guarded(AT_FDCWD, path, flags | O_LARGEFILE, mode); }
int openat(int at, const char *path, int flags, ...) { MODE(flags) return open_guarded(at, path, flags, mode); }
int openat64(int at, const char *path, int flags, ...) { MODE(flags) return open_guarded(at, path, flags | O_LARGEFILE, mode); }
int creat(const char *path, mode_t mode) { return open_guarded(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode); }
int creat64(const char *path, mode_t mode) { return creat(path, mode); }

/* Does a change of a guarded file, after it was noted; `call` is what really does it. */
#define CHANGE(handle, offset, length, call) \
    struct stat found; \
    if (!is_guarded_file(handle, &found)) return call; \
    if (refuses()) return -1; \
    pthread_mutex_lock(&lock); \
    fstat(handle, &found); \
    note_data(handle, &found, offset, length); \
    __typeof__(call) result = call; \
    int error = errno; \
    pthread_mutex_unlock(&lock); \
    errno = error; \
    return result;

static uint64_t place(int handle) {
    if (fcntl(handle, F_GETFL) & O_APPEND) return length_of(handle);
    return lseek(handle, 0, SEEK_CUR);
}

static uint64_t total(const struct iovec *parts, int count) {
    uint64_t sum = 0;
    while (count--) sum += parts++->iov_len;
    return sum;
}

ssize_t write(int handle, const void *data, size_t length) {
    CHANGE(handle, place(handle), length, syscall(SYS_write, handle, data, length))
}

ssize_t pwrite(int handle, const void *data, size_t length, off_t offset) {
    CHANGE(handle, offset, length, syscall(SYS_pwrite64, handle, data, length, offset))
}

ssize_t pwrite64(int handle, const void *data, size_t length, off64_t offset) { return pwrite(handle, data, length, offset); }

ssize_t writev(int handle, const struct iovec *parts, int count) {
    CHANGE(handle, place(handle), total(parts, count), syscall(SYS_writev, handle, parts, count))
}

ssize_t pwritev(int handle, const struct iovec *parts, int count, off_t offset) {
    CHANGE(handle, offset, total(parts, count), syscall(SYS_pwritev, handle, parts, count, offset, 0))
}

ssize_t pwritev64(int handle, const struct iovec *parts, int count, off64_t offset) {
    return pwritev(handle, parts, count, offset);
}

int ftruncate(int handle, off_t length) {
    CHANGE(handle, length, UINT64_MAX, syscall(SYS_ftruncate, handle, length))
}

int ftruncate64(int handle, off64_t length) { return ftruncate(handle, length); }

int fallocate(int handle, int mode, off_t offset, off_t length) {
    CHANGE(handle, offset, length, syscall(SYS_fallocate, handle, mode, offset, length))
}

int fallocate64(int handle, int mode, off64_t offset, off64_t length) { return fallocate(handle, mode, offset, length); }
int posix_fallocate(int handle, off_t offset, off_t length) { return fallocate(handle, 0, offset, length) ? errno : 0; }
int posix_fallocate64(int handle, off64_t offset, off64_t length) { return posix_fallocate(handle, offset, length); }

/* --- syncs */

static void wait_as_told(void) {
    int64_t delay_ns = control->sync_delay_ns;
    if (delay_ns > 0) {
        struct timespec delay = {delay_ns / 1000000000, delay_ns % 1000000000};
        nanosleep(&delay, NULL);
    }
}

static int sync_guarded(int handle, int number) {
    struct stat found;
    if (guarded_length && !fstat(handle, &found) && S_ISDIR(found.st_mode)) {
        wait_as_told();
        int result = syscall(number, handle);
        pthread_mutex_lock(&lock);
        if (!result) sync_names(found.st_ino);
        pthread_mutex_unlock(&lock);
        return result;
    }
    if (!is_guarded_file(handle, &found)) return syscall(number, handle);
    pthread_mutex_lock(&lock);
    int kept = data_handle(found.st_ino);
    uint64_t end = length_of(kept);
    pthread_mutex_unlock(&lock);
    wait_as_told();
    if (control->sync_errno) {
        __atomic_add_fetch(&control->failed_sync_count, 1, __ATOMIC_RELAXED);
        errno = control->sync_errno;
        return -1;
    }
    int result = syscall(number, handle);
    if (!result) {
        pthread_mutex_lock(&lock);
        commit(data_handle(found.st_ino), end);
        pthread_mutex_unlock(&lock);
        __atomic_add_fetch(&control->sync_count, 1, __ATOMIC_RELAXED);
    }
    return result;
}

int fsync(int handle) { return sync_guarded(handle, SYS_fsync); }
int fdatasync(int handle) { return sync_guarded(handle, SYS_fdatasync); }

/* --- names */

#define NAMED(at, path, condition, noting, call) \
    char full[LONGEST]; \
    if (!absolute(at, path, full) || !is_guarded(full)) return call; \
    pthread_mutex_lock(&lock); \
    struct stat found; \
    if (condition) { noting; } \
    int result = call, error = errno; \
    pthread_mutex_unlock(&lock); \
    errno = error; \
    return result;

int renameat2(int at, const char *path, int other_at, const char *other, unsigned flags) {
    char target[LONGEST];
    if (!absolute(other_at, other, target)) return syscall(SYS_renameat2, at, path, other_at, other, flags);
    NAMED(at, path, !lstat(full, &found), note_name(RENAMED, full, target, save(target)),
          syscall(SYS_renameat2, at, path, other_at, other, flags))
}

int renameat(int at, const char *path, int other_at, const char *other) { return renameat2(at, path, other_at, other, 0); }
int rename(const char *path, const char *other) { return renameat2(AT_FDCWD, path, AT_FDCWD, other, 0); }

int unlinkat(int at, const char *path, int flags) {
    NAMED(at, path, !lstat(full, &found),
          if (S_ISDIR(found.st_mode)) note_name(DIRECTORY_REMOVED, full, NULL, 0);
          else note_name(REMOVED, full, NULL, save(full)),
          syscall(SYS_unlinkat, at, path, flags))
}

int unlink(const char *path) { return unlinkat(AT_FDCWD, path, 0); }
int rmdir(const char *path) { return unlinkat(AT_FDCWD, path, AT_REMOVEDIR); }

int mkdirat(int at, const char *path, mode_t mode) {
    char named[LONGEST];
    if (absolute(at, path, named) && is_guarded(named) && refuses()) return -1;
    NAMED(at, path, lstat(full, &found), note_name(DIRECTORY_MADE, full, NULL, 0), syscall(SYS_mkdirat, at, path, mode))
}

int mkdir(const char *path, mode_t mode) { return mkdirat(AT_FDCWD, path, mode); }

int linkat(int at, const char *path, int other_at, const char *other, int flags) {
    NAMED(other_at, other, lstat(full, &found), note_name(LINKED, full, NULL, 0),
          syscall(SYS_linkat, at, path, other_at, other, flags))
}

int link(const char *path, const char *other) { return linkat(AT_FDCWD, path, AT_FDCWD, other, 0); }

/* --- how full the disk is */

int statvfs(const char *path, struct statvfs *found) {
    REAL(int, statvfs, const char *, struct statvfs *);
    int result = real(path, found);
    if (!result && control->write_errno == ENOSPC && is_guarded(path)) found->f_bfree = found->f_bavail = 0;
    return result;
}

int statvfs64(const char *path, struct statvfs64 *found) {
    REAL(int, statvfs64, const char *, struct statvfs64 *);
    int result = real(path, found);
    if (!result && control->write_errno == ENOSPC && is_guarded(path)) found->f_bfree = found->f_bavail = 0;
    return result;
}

/* --- the wall clock */

int clock_gettime(clockid_t clock, struct timespec *now) {
    REAL(int, clock_gettime, clockid_t, struct timespec *);
    int result = real(clock, now);
    if (!result && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE) && control->clock_offset_ns) {
        int64_t ns = now->tv_sec * 1000000000LL + now->tv_nsec + control->clock_offset_ns;
        now->tv_sec = ns / 1000000000LL;
        now->tv_nsec = ns % 1000000000LL;
    }
    return result;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec precise;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &precise);
    now->tv_sec = precise.tv_sec;
    now->tv_usec = precise.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *out) {
    struct timespec precise;
    clock_gettime(CLOCK_REALTIME, &precise);
    if (out) *out = precise.tv_sec;
    return precise.tv_sec;
}
