/* What passes through standard output: colours of ours as they are, wherever a piece of the text ends, and nothing else
 * that a terminal would obey. */
#include "tools/standard_output.h"

#include "tests/model/claims.h"
#include "tools/command.h"

int ups_command_fail(const ups_arguments *arguments, const ups_error *error) {
    return 1; /* only what was written is looked at here */
}

/* Prints `text` behind `before` letters, as a command would; what arrived, into `got` of `room` bytes. */
static void print(int before, const char *text, char *got, size_t room) {
    FILE *old = stdout;
    int kept = dup(STDOUT_FILENO), ends[2];
    assert_int_equal(pipe(ends), 0);
    dup2(ends[1], STDOUT_FILENO);
    close(ends[1]);
    ups_standard_output_begin();
    for (int i = 0; i < before; i++) putchar('a');
    fputs(text, stdout);
    int code = ups_standard_output_end(0);
    fclose(stdout);
    stdout = old;
    dup2(kept, STDOUT_FILENO);
    close(kept);
    ssize_t length = read(ends[0], got, room - 1);
    close(ends[0]);
    assert_int_equal(code, 0);
    assert_true(length >= before);
    got[length] = '\0';
    memmove(got, got + before, (size_t)(length - before) + 1);
}

CLAIM(colours_and_characters_pass_wherever_a_piece_ends) {
    const char *text = "\033[31mred\033[0m \xe2\x80\xa6 \xf0\x9f\x8d\x8f end";
    char got[1000];
    for (int before = 200; before < 300; before++) {
        print(before, text, got, sizeof got);
        assert_string_equal(got, text);
    }
}

CLAIM(other_sequences_are_escaped_wherever_a_piece_ends) {
    char got[1000];
    for (int before = 240; before < 270; before++) {
        print(before, "\033[2J\033[35m\033[3", got, sizeof got);
        assert_string_equal(got, "\\u001b[2J\\u001b[35m\\u001b[3");
    }
}

int main(void) {
    return run_claims(NULL, NULL, NULL);
}
