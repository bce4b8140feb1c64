import SodiumPrimitives
import Testing

struct SecretStreamStateTests {
  let key = Random.bytes(32)

  @Test func startsWhereLibsodiumsInitPushStarts() {
    var header = [UInt8](repeating: 0, count: 24)
    let oracle = LibsodiumStream(key: key, drawing: &header)
    let box = BoxedState(key: key, header: header)
    #expect(header != [UInt8](repeating: 0, count: 24))
    #expect(box.state.bytes == oracle.stateBytes)
  }

  @Test func setsTheCounterLittleEndian() {
    let header = Random.bytes(24)
    let box = BoxedState(key: key, header: header)
    #expect(Array(box.state.bytes[32..<44]) == [1, 0, 0, 0] + header[16...])
    box.state.setCounter(0x0403_0201)
    #expect(Array(box.state.bytes[32..<44]) == [1, 2, 3, 4] + header[16...])
  }

  /// Neither the counter's wrap nor a REKEY tag may leave the key as it was; any other message must.
  @Test(arguments: CipherBackend.allCases, [3, 264])
  func changesTheKeyAfterRekeyTagAndWrapOnly(backend: CipherBackend, count: Int) {
    let cipher = SecretStreamCipher(backend)
    func keyChanges(_ tag: SecretStreamTag, counter: UInt32) -> Bool {
      let header = Random.bytes(24)
      let box = BoxedState(key: key, header: header)
      box.state.setCounter(counter)
      let before = box.state.bytes[0..<32]
      _ = box.push(Random.bytes(count), tag: tag, with: cipher)
      let changed = box.state.bytes[0..<32] != before
      let counterAfter = box.state.bytes[32..<36].reversed().reduce(UInt32(0)) { $0 << 8 | UInt32($1) }
      #expect(counterAfter == (changed ? 1 : counter &+ 1))
      return changed
    }
    #expect(!keyChanges(.message, counter: 1))
    #expect(!keyChanges(.push, counter: 0xFFFF_FFFE))
    #expect(keyChanges(.rekey, counter: 7))
    #expect(keyChanges(.final, counter: 7))  // FINAL has REKEY's bit
    #expect(keyChanges(.message, counter: 0xFFFF_FFFF))
    #expect(keyChanges(.push, counter: 0xFFFF_FFFF))
  }

  /// The state consists of bytes, so it can stand at any address.
  @Test func sealsFromAStateAtAnOddAddress() async {
    await #expect(processExitsWith: .success) {
      struct Pair: ~Copyable {
        var byte: UInt8 = 1
        var state = SecretStreamState(
          key: [UInt8](repeating: 1, count: 32), header: [UInt8](repeating: 2, count: 24))
      }
      var pair = Pair()
      let message = [UInt8](repeating: 3, count: 264)
      var output = [UInt8](repeating: 0, count: 281)
      output.withUnsafeMutableBytes { memory in
        var output = OutputRawSpan(buffer: memory, initializedCount: 0)
        SecretStreamCipher().push(
          &pair.state, message.span.bytes, ad: RawSpan(), tag: .message, into: &output)
      }
      var oracle = LibsodiumStream(
        key: [UInt8](repeating: 1, count: 32), header: [UInt8](repeating: 2, count: 24))
      guard oracle.push(message, rawTag: 0) == output, oracle.stateBytes == pair.state.bytes, pair.byte == 1
      else {
        fatalError("other bytes")
      }
    }
  }

  @Test func endsTheProcessOnAShortKey() async {
    await #expect(processExitsWith: .failure) {
      _ = BoxedState(key: [UInt8](repeating: 0, count: 31), header: [UInt8](repeating: 0, count: 24))
    }
  }
}
