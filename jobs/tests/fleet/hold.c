/* Holds one thread of a process, and no other: loaded before its C library, it lets the thread that is called HOLD_THREAD
 * not go on from a wait while there is a file HOLD_FILE.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static void stand_still(void) {
    const char *wanted = getenv("HOLD_THREAD"), *file = getenv("HOLD_FILE");
    char name[16] = "";
    prctl(PR_GET_NAME, name);
    if (!wanted || !file || strcmp(name, wanted) != 0)
        return;
    while (access(file, F_OK) == 0)
        usleep(10000);
}

int epoll_wait(int epoll, struct epoll_event *events, int most, int milliseconds) {
    /* With eight bytes of signals, none of which is named. */
    int found = (int)syscall(SYS_epoll_pwait, epoll, events, most, milliseconds, NULL, 8);
    int error = errno;
    stand_still();
    errno = error;
    return found;
}
