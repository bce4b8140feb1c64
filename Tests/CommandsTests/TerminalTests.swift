import SodiumPrimitives
import Testing

#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

/// The program on a terminal.
struct TerminalTests {
  /// Runs a program on a terminal, waits for its question, sends it a signal, and prints whether there is echo then; if it was only
  /// stopped, lets it go on, and prints whether there is echo again, and how it ended after the answer.
  private static let script = #"""
    import os, pty, select, signal, sys, termios, time
    number, answer, arguments = int(sys.argv[1]), sys.argv[2], sys.argv[3:]
    # As a shell starts programs, whatever the tests' own threads have blocked.
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    signal.alarm(60)

    def shell(output):
        """What leads the session of the terminal; a process without such a parent is not stopped."""
        process = os.fork()
        if process == 0:
            os.setpgid(0, 0)
            signal.signal(signal.SIGTTOU, signal.SIG_IGN)
            os.tcsetpgrp(0, os.getpid())
            signal.signal(signal.SIGTTOU, signal.SIG_DFL)
            os.execv(arguments[0], arguments)
        def echo():
            return bool(termios.tcgetattr(0)[3] & termios.ECHO)
        def wait_for_question():
            while echo():
                time.sleep(0.01)
        wait_for_question()
        os.kill(process, number)
        _, status = os.waitpid(process, os.WUNTRACED)
        text = "echo" if echo() else "no echo"
        if os.WIFSTOPPED(status):
            os.kill(process, signal.SIGCONT)
            wait_for_question()
            os.write(output, b"?")
            _, status = os.waitpid(process, 0)
            text += f", stopped, then {os.waitstatus_to_exitcode(status)} and " + ("echo" if echo() else "no echo")
        os.write(output, text.encode())
        os._exit(0)

    result, output = os.pipe()
    process, terminal = pty.fork()
    if process == 0:
        shell(output)
    os.close(output)
    inputs = [result, terminal]
    while True:
        ready, _, _ = select.select(inputs, [], [])
        if terminal in ready:
            try:
                os.read(terminal, 1000)
            except OSError:
                inputs = [result]
        if result in ready:
            text = os.read(result, 1000).decode()
            if text != "?":
                print(text)
                break
            os.write(terminal, answer.encode() + b"\n")
    """#

  @Test(arguments: [SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP], ["ls", "container info", "find", "get"])
  func echoComesBackAfterAnySignal(number: Int32, command: String) throws {
    let folder = try TemporaryFolder()
    let words = try folder.makeFile("words", Array("secret\n".utf8))
    let container = folder.path("c")
    try #require(
      folder.runBare("container", "create", container, "--passphrase-file", words).status == 0)
    var arguments = command.split(separator: " ").map(String.init) + [container]
    if command == "get" { arguments += ["/", folder.path("out")] }
    let all = ["-c", Self.script, "\(number)", "secret", DynamicsProcess.executable] + arguments
    let outcome = try DynamicsProcess(
      all.map { Array($0.utf8) }, in: folder, executable: "/usr/bin/python3"
    ).finish()
    #expect(
      outcome.text == (number == SIGTSTP ? "echo, stopped, then 0 and echo\n" : "echo\n"), "\(outcome.errors)"
    )
  }

  /// The one to remove is asked for, so that nobody removes the one that was just typed.
  @Test func aKeyToRemoveIsNotGuessed() throws {
    let folder = try TemporaryFolder()
    let container = try folder.makeContainer()
    let other = try folder.makeFile("other", Random.bytes(32))
    try folder.run("container", "key", "add", container, "--new-key-file", other)
    try folder.run("container", "key", "remove", container, expecting: 64)
    try folder.run("ls", container)
    #expect(try folder.runBare("ls", container, "--key-file", other).status == 0)
  }
}
