import PushWire
import Testing

struct LoopbackTests {
  @Test(arguments: ["localhost", "LOCALHOST", "127.0.0.1", "127.255.0.3", "::1", "[::1]"])
  func isThisMachine(_ host: String) { #expect(Loopback.isHost(host)) }

  /// A name that begins like an address is whatever its owner's name server says.
  @Test(arguments: [
    "", "127.", "127.1", "127.example.com", "127.0.0.1.example.com", "128.0.0.1", "::2",
    "localhost.example.com",
    "::ffff:127.0.0.1", "127.0.0.1 ", "0x7f.0.0.1",
  ])
  func isAnotherOne(_ host: String) { #expect(!Loopback.isHost(host)) }
}
