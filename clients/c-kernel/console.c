/* The console, the end of the machine, and the command line. */
#include <stdarg.h>

#include "kernel.h"

uint32_t cpu_count = 1, seconds = 3;
bool is_broken, is_deaf;

static void put_number(uint64_t number, uint32_t base)
{
    if (number >= base)
        put_number(number / base, base);
    put("0123456789abcdef"[number % base]);
}

void print(const char *format, ...)
{
    static uint32_t word;
    va_list arguments;
    va_start(arguments, format);
    size_t flags = lock(&word);
    for (; *format != 0; format++) {
        if (*format != '%')
            put(*format);
        else if (*++format == 's')
            for (const char *text = va_arg(arguments, const char *); *text != 0; text++)
                put(*text);
        else
            put_number(va_arg(arguments, uint64_t), *format == 'x' ? 16 : 10);
    }
    unlock(&word, flags);
    va_end(arguments);
}

/* With 33 if all is good, else 35. If several CPUs end the machine, the first one does. */
_Noreturn void end(bool is_good, const char *why)
{
    static uint32_t is_ending;
    irqs_off(NULL);
    if (__atomic_exchange_n(&is_ending, 1, __ATOMIC_RELAXED) == 0) {
        print("c-kernel: %s\n", why);
        end_machine(is_good ? 33 : 35);
    }
    for (;;)
        pause();
}

/* Ends the machine if the engine did not do what it was asked for. */
void check(shootdown_status_t status, const char *what)
{
    if (status == SHOOTDOWN_OK)
        return;
    print("c-kernel: the answer was %u\n", (uint64_t)status);
    end(false, what);
}

/* Words differ in their first letters, breaks in their last. */
static void read_word(const char *word)
{
    uint32_t number = 0;
    char last = 0;
    for (const char *at = word; *at != 0 && *at != ' '; at++)
        if ((last = *at) >= '0' && *at <= '9')
            number = number * 10 + (uint32_t)(*at - '0');
    if (*word == 'c')
        cpu_count = number;
    else if (*word == 's')
        seconds = number;
    is_broken |= *word == 'b' && last == 'h';
    is_deaf |= *word == 'b' && last == 'l';
}

void read_options(void)
{
    const char *line = command_line();
    for (bool begins = true; line != NULL && *line != 0; begins = *line++ == ' ')
        if (begins)
            read_word(line);
    if (cpu_count < 1 || cpu_count > MAX_CPUS)
        end(false, "cpus= takes 1 to 16");
}
