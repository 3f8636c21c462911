// A policy of execution mode wasi that makes privileged containers unprivileged: a
// command-line program in C, which reads stdin and writes stdout.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

__attribute__((import_module("host"), import_name("call"))) int
host_call(const char *binding, int bn, const char *ns, int nn, const char *op, int on, const char *payload, int n);

#define text(s) s, sizeof(s) - 1

// all reads stdin to its end.
static char *all(void) {
	size_t n = 0, room = 4096;
	char *b = malloc(room);
	for (ssize_t got; (got = read(0, b + n, room - n - 1)) > 0;)
		if ((n += got) + 1 == room) b = realloc(b, room *= 2);
	b[n] = 0;
	return b;
}

static void say(const char *s, size_t n) {
	while (n > 0) {
		ssize_t wrote = write(1, s, n);
		if (wrote <= 0) exit(9);
		s += wrote, n -= wrote;
	}
}

// object_of cuts the text at the end of request.object and returns where it begins.
static char *object_of(char *s) {
	char *from = strstr(s, "\"object\":{");
	if (!from) return "";
	int depth = 0, quoted = 0;
	for (char *p = from += 9; *p; p++) {
		if (quoted) {
			if (*p == '\\') p++;
			else if (*p == '"') quoted = 0;
		} else if (*p == '"') quoted = 1;
		else if (*p == '{') depth++;
		else if (*p == '}' && --depth == 0) {
			p[1] = 0;
			return from;
		}
	}
	return "";
}

int main(int argc, char **argv) {
	char *request = all();
	if (argc == 2 && !strcmp(argv[1], "validate-settings")) {
		say(text("{\"valid\":true}\n"));
		return 0;
	}
	if (argc != 2 || strcmp(argv[1], "validate")) return 2;
	char *object = object_of(request);
	if (strstr(object, "\"abort\":true")) {
		static const char why[] = "asked for\n";
		write(2, text(why));
		return 3;
	}
	if (strstr(object, "\"owner\":")) {
		int failed = host_call(text("kubewarden"), text("kubernetes"), text("get_resource"),
			text("{\"api_version\":\"v1\",\"kind\":\"Namespace\",\"name\":\"shop\",\"disable_cache\":false}"));
		char *answer = all();
		if (failed) {
			write(2, answer, strlen(answer));
			return 1;
		}
	}
	static const char before[] = "\"privileged\":true", after[] = "\"privileged\":false";
	if (!strstr(object, before)) {
		say(text("{\"accepted\":true}"));
		return 0;
	}
	say(text("{\"accepted\":true,\"mutated_object\":"));
	for (char *at; (at = strstr(object, before)); object = at + sizeof(before) - 1) {
		say(object, at - object);
		say(text(after));
	}
	say(object, strlen(object));
	say("}", 1);
	return 0;
}
