import SodiumPrimitives

/// One core, no file format: one-message secretstreams through libsodium alone and through libcrypto.
struct SecretStreamRung {
  let bench: Bench

  func measure() throws {
    for chunk in [64 << 10, 16 << 10] {
      var cases: [Case] = []
      for backend in CipherBackend.allCases {
        let work = Chunks(backend, chunkByteCount: chunk, byteCount: bench.byteCountInMemory(block: chunk))
        cases.append(work.pushing)
        cases.append(work.pulling)
      }
      let series = try alternating(cases, repetitions: bench.repetitions)
      bench.add(series)
      for (i, direction) in ["push", "pull"].enumerated() {
        bench.add(
          Ratio(
            "\(direction) \(chunk >> 10) KiB, libcrypto to libsodium", subject: series[2 + i],
            baseline: series[i]))
      }
    }
  }
}

/// One chunk, pushed or pulled over and over: a chunk stays in the core's cache, so this is the cipher alone.
private final class Chunks {
  private let cipher: SecretStreamCipher
  private let name: String
  private let byteCount: Int
  private let rounds: Int
  private let keyAndHeader = Buffer(byteCount: SecretKey.byteCount + SecretStreamCipher.headerByteCount)
  private let plaintext: Buffer
  private let sealed: Buffer

  init(_ backend: CipherBackend, chunkByteCount: Int, byteCount: Int) {
    cipher = SecretStreamCipher(backend)
    // Without libcrypto both are libsodium, and the table has to say so.
    name = "\(chunkByteCount >> 10) KiB, \(cipher.backend.rawValue)"
    self.byteCount = byteCount
    rounds = byteCount / chunkByteCount
    plaintext = Buffer(byteCount: chunkByteCount)
    keyAndHeader.fillIncompressibly()
    plaintext.fillIncompressibly()
    sealed = Buffer(byteCount: chunkByteCount + SecretStreamCipher.messageOverheadByteCount)
  }

  /// A stream of many messages.
  var pushing: Case {
    Case("push \(name)", byteCount: byteCount) { [self] in
      var state = newState()
      return seconds {
        for _ in 0..<rounds { push(&state) }
      }
    }
  }

  /// The first message of a stream, again and again from the same state: pulling a stream would need all of it in memory.
  var pulling: Case {
    Case("pull \(name)", byteCount: byteCount) { [self] in
      var state = newState()
      push(&state)
      let output = plaintext.bytes
      return try seconds {
        for _ in 0..<rounds {
          var state = newState()
          let (opened, tag) = try cipher.pull(&state, sealed.bytes.bytes, ad: RawSpan())
          output.copyMemory(from: opened)
          precondition(tag == .message, "what was pushed is pulled")
        }
      }
    }
  }

  private func newState() -> SecretStreamState {
    let bytes = UnsafeRawBufferPointer(keyAndHeader.bytes)
    return SecretStreamState(
      key: bytes.bytes.extracting(first: SecretKey.byteCount),
      header: bytes.bytes.extracting(droppingFirst: SecretKey.byteCount))
  }

  private func push(_ state: inout SecretStreamState) {
    var output = OutputRawSpan(buffer: sealed.bytes, initializedCount: 0)
    cipher.push(&state, plaintext.bytes.bytes, ad: RawSpan(), tag: .message, into: &output)
  }
}
