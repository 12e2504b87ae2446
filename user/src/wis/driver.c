/*
 * The first process of a machine that runs will-it-scale: `./lab bench wis` links it with that project's unmodified tests, which
 * call new_task() and count in the word that they are given. It stands in the place of their main.c, which wants hwloc.
 *
 * A run is a process of its own, the head: it has the threads or forks the processes, samples their counts, and takes all of them
 * with it at its end. So a test that aborts, hangs or runs out of memory ends one row.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MOST_TASKS = 64, MOST_SLICES = 64, WORDS = 96 };

/* What the lab has given the names of each test in "tests.h", a line TEST(name) each. */
#define TEST(name) \
	extern void name##_testcase(unsigned long long *, unsigned long); \
	extern void name##_testcase_prepare(unsigned long) __attribute__((weak)); \
	extern void name##_testcase_cleanup(void) __attribute__((weak));
#include "tests.h"
#undef TEST

static const struct test {
	const char *name;
	void (*run)(unsigned long long *, unsigned long);
	void (*prepare)(unsigned long);
	void (*cleanup)(void);
} tests[] = {
#define TEST(name) { #name, name##_testcase, name##_testcase_prepare, name##_testcase_cleanup },
#include "tests.h"
};

/* What the processes of a run share. The counts stand as far from each other as in main.c. */
static struct {
	struct { unsigned long long count; char gap[248]; } tasks[MOST_TASKS];
	double per_s[MOST_SLICES];
	char why[WORDS];
	int is_failed;
	volatile int is_done;
} *shared;

static long slice_ms = 100, slices = 5, warmup_ms = 50;

struct task {
	const struct test *test;
	unsigned long number;
	int start;
};

static struct task tasks[MOST_TASKS];
static int is_threads;

/* The first failure of a run is kept. Several tasks may fail at once. */
static void fail(const char *what, const char *cause)
{
	if (__sync_lock_test_and_set(&shared->is_failed, 1))
		return;
	snprintf(shared->why, WORDS, "%s%s%s", what, cause ? ": " : "", cause ? cause : "");
	for (char *at = shared->why; *at; at++)
		if (*at == '"' || *at == '\\' || *at < ' ')
			*at = '\'';
}

/* What assert() calls in the tests. */
void wis_assert_fail(const char *condition, const char *file, unsigned int line, const char *function)
{
	char words[WORDS];

	/* The files of the tests are gone then: it will be killed. */
	while (shared->is_done)
		pause();
	snprintf(words, sizeof words, "assert %.40s", condition);
	fail(words, errno ? strerror(errno) : NULL);
	abort();
}

static long long now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000ll + now.tv_nsec;
}

static void sleep_ms(long ms)
{
	struct timespec left = { ms / 1000, ms % 1000 * 1000000 };

	while (nanosleep(&left, &left) == -1 && errno == EINTR)
		;
}

static void *thread(void *argument)
{
	struct task *task = argument;
	struct pollfd started = { task->start, POLLIN, 0 };
	cpu_set_t cpus;

	CPU_ZERO(&cpus);
	CPU_SET(task->number % sysconf(_SC_NPROCESSORS_ONLN), &cpus);
	if (sched_setaffinity(0, sizeof cpus, &cpus) == -1) {
		fail("sched_setaffinity", strerror(errno));
		_exit(1);
	}
	while (poll(&started, 1, -1) == -1 && errno == EINTR)
		;
	errno = 0;
	task->test->run(&shared->tasks[task->number].count, task->number);
	return NULL;
}

/* Called by tests, too: such a task is on the CPU of its creator. */
void new_task(void *(function)(void *), void *argument)
{
	int error, child = 0;
	pthread_t ignored;

	if (is_threads)
		error = pthread_create(&ignored, NULL, function, argument);
	else
		error = (child = fork()) == -1 ? errno : 0;
	if (error) {
		fail(is_threads ? "pthread_create" : "fork", strerror(error));
		_exit(1);
	}
	if (!is_threads && child == 0) {
		function(argument);
		_exit(0);
	}
}

static unsigned long long total(int count)
{
	unsigned long long sum = 0;

	for (int i = 0; i < count; i++)
		sum += *(volatile unsigned long long *)&shared->tasks[i].count;
	return sum;
}

/* A process of the run has ended, as none should. */
static void end_of(int status)
{
	if (WIFSIGNALED(status))
		fail(strsignal(WTERMSIG(status)), NULL);
	else
		fail("a task ended", NULL);
}

static void head(const struct test *test, int count)
{
	int start[2], status;

	setpgid(0, 0);
	if (pipe(start) == -1) {
		fail("pipe", strerror(errno));
		_exit(1);
	}
	if (test->prepare)
		test->prepare(count);
	for (int i = 0; i < count; i++) {
		tasks[i] = (struct task){ test, i, start[0] };
		new_task(thread, &tasks[i]);
	}
	if (write(start[1], "", 1) != 1)
		fail("write", strerror(errno));
	sleep_ms(warmup_ms);
	for (int i = 0; i < slices && !shared->is_failed; i++) {
		unsigned long long before = total(count);
		long long began_ns = now_ns();

		sleep_ms(slice_ms);
		shared->per_s[i] = (total(count) - before) * 1e9 / (now_ns() - began_ns);
		if (!is_threads && waitpid(-1, &status, WNOHANG) > 0)
			end_of(status);
	}
	shared->is_done = 1;
	if (test->cleanup)
		test->cleanup();
	_exit(0);
}

/* Ends whatever is left of a run, which is no longer ours where its parents have died. */
static void reap(int group)
{
	int pid;

	do {
		if (group > 1)
			kill(-group, SIGKILL);
		pid = waitpid(-1, NULL, WNOHANG);
		if (pid == 0)
			sleep_ms(1);
	} while (pid >= 0);
}

static void run(const struct test *test, int count)
{
	long long deadline_ns = now_ns() + (warmup_ms + slices * slice_ms) * 5000000ll + 10000000000ll;
	int pid, status, ended;

	memset(shared, 0, sizeof *shared);
	pid = fork();
	if (pid == 0)
		head(test, count);
	while ((ended = waitpid(pid, &status, WNOHANG)) == 0 && now_ns() < deadline_ns)
		sleep_ms(5);
	if (ended == 0)
		fail("it hung", NULL);
	else if (pid == -1 || !shared->is_done)
		end_of(status);
	reap(pid);
	printf("@row {\"test\":\"%s\",\"kind\":\"%s\",\"tasks\":%d,\"failed\":\"%s\",\"slices\":[", test->name,
	       is_threads ? "threads" : "processes", count, shared->why);
	for (int i = 0; i < slices; i++)
		printf("%s%.1f", i ? "," : "", shared->per_s[i]);
	printf("]}\n");
	fflush(stdout);
}

static void make_place(const char *kind, const char *path)
{
	mkdir(path, 01777);
	/* The reference kernel has them, or refuses. */
	mount(kind, path, kind, 0, NULL);
}

/* Touches most of the memory that is free, and gives it back: an emulator that has not seen a page yet takes longer than any kernel. */
static void touch_memory(void)
{
	struct sysinfo info;
	int pid = fork();

	if (pid == 0 && sysinfo(&info) == 0) {
		size_t bytes = (size_t)info.freeram * info.mem_unit / 8 * 7 & ~4095ul;
		char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		for (size_t at = 0; memory != MAP_FAILED && at < bytes; at += 4096)
			memory[at] = 1;
	}
	if (pid == 0)
		_exit(0);
	waitpid(pid, NULL, 0);
}

int main(int count, char **words)
{
	int first = 0, last = sizeof tests / sizeof *tests - 1;
	const char *numbers = "1,2";

	for (int i = 1; i < count; i++)
		if (sscanf(words[i], "--slice-ms=%ld", &slice_ms) != 1 && sscanf(words[i], "--slices=%ld", &slices) != 1 &&
		    sscanf(words[i], "--warmup-ms=%ld", &warmup_ms) != 1 && sscanf(words[i], "--first=%d", &first) != 1 &&
		    sscanf(words[i], "--last=%d", &last) != 1 && !strncmp(words[i], "--tasks=", 8))
			numbers = words[i] + 8;
	if (slices > MOST_SLICES)
		slices = MOST_SLICES;
	if (getpid() == 1) {
		make_place("proc", "/proc");
		make_place("sysfs", "/sys");
		make_place("tmpfs", "/tmp");
		make_place("tmpfs", "/dev/shm");
		touch_memory();
	}
	shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED)
		return 1;
	for (int i = first; i <= last; i++) {
		printf("@progress %d %d %s\n", i - first, last + 1 - first, tests[i].name);
		fflush(stdout);
		for (is_threads = 1; is_threads >= 0; is_threads--)
			for (const char *at = numbers; at; at = strchr(at, ',')) {
				int tasks;

				at += *at == ',';
				tasks = atoi(at);
				if (tasks >= 1 && tasks <= MOST_TASKS)
					run(&tests[i], tasks);
			}
	}
	return 0;
}
