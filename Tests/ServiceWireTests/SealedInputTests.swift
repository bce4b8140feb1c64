import Foundation
import SodiumPrimitives
import TestSupport
import Testing

@testable import ServiceWire

/// The sealed socket as a value: what comes in any pieces is the same stream of frames.
struct SealedInputTests {
  let dialler: KeyPair
  let acceptor: KeyPair

  init() throws {
    dialler = try KeyPair()
    acceptor = try KeyPair()
  }

  private func handshake(isDialler: Bool, prologue: [UInt8] = []) -> NoiseHandshake {
    NoiseHandshake(
      .kk, isInitiator: isDialler, own: isDialler ? dialler : acceptor,
      peerKey: (isDialler ? acceptor : dialler).publicKey, prologue: prologue)
  }

  /// One side of a connection.
  private final class Side {
    var input: SealedInput
    var sending: RecordCipher?
    var isOpen = false
    var frames = FrameDecoder(byteCountMax: 1 << 20)
    var rest: [UInt8] = []
    /// What goes to the other side.
    var output: [UInt8] = []
    var peerKey = Data()

    init(_ handshake: consuming NoiseHandshake) throws {
      input = SealedInput(handshake)
      try goOn()
    }

    func goOn() throws {
      var step = try input.goOn()
      output += step.message
      guard let cipher = step.sending.take() else { return }
      #expect(!isOpen)
      isOpen = true
      sending = consume cipher
      peerKey = step.peerKey
    }

    func receive(_ bytes: some Collection<UInt8>) throws {
      rest += bytes
      while true {
        let all = rest
        let taken = try all.span.bytes.withUnsafeBytes { bytes throws(SealedInput.Failure) in
          try input.take(bytes, into: &frames)
        }
        switch taken {
        case .nothing: return
        case .handshake(let count):
          rest.removeFirst(count)
          try goOn()
        case .record(let count): rest.removeFirst(count)
        }
      }
    }

    func seal(_ bytes: [UInt8]) throws {
      var cipher = sending.take()!
      output += try bytes.span.bytes.withUnsafeBytes { bytes throws(ProtocolFault) in
        try cipher.records(of: bytes)
      }
      sending = consume cipher
    }

    func takeOutput() -> [UInt8] {
      defer { output = [] }
      return output
    }
  }

  @Test(arguments: [1, 2, 3, 50, 1000, 70_000]) func readsTheSameInAnyPieces(pieceByteCount: Int) throws {
    let near = try Side(handshake(isDialler: true))
    let far = try Side(handshake(isDialler: false))
    func cross(_ bytes: [UInt8], to side: Side) throws {
      for begin in stride(from: 0, to: bytes.count, by: pieceByteCount) {
        try side.receive(bytes[begin..<min(bytes.count, begin + pieceByteCount)])
      }
    }
    #expect(far.output.isEmpty)
    try cross(near.takeOutput(), to: far)
    try cross(far.takeOutput(), to: near)
    #expect(near.peerKey == Data(acceptor.publicKey) && far.peerKey == Data(dialler.publicKey))
    let bodies = [1, 65_515, 65_516, 150_000, 3].map { [UInt8](repeating: UInt8($0 & 0xff), count: $0) }
    for body in bodies { try near.seal(FrameDecoder.length(body.count) + body) }
    let sealed = near.takeOutput()
    #expect(
      sealed.count
        == bodies.reduce(0) {
          $0 + RecordCipher.sealedByteCount($1.count + FrameDecoder.lengthByteCount)
        })
    try cross(sealed, to: far)
    for body in bodies { #expect(try far.frames.next() == Data(body)) }
    #expect(try far.frames.next() == nil)
    #expect(far.rest.isEmpty)
  }

  @Test func takesNothingAfterARecordThatDoesNotOpen() throws {
    let near = try Side(handshake(isDialler: true))
    let far = try Side(handshake(isDialler: false))
    try far.receive(near.takeOutput())
    try near.receive(far.takeOutput())
    try near.seal(FrameDecoder.length(1) + [7])
    let first = near.takeOutput()
    try near.seal(FrameDecoder.length(1) + [8])
    var second = near.takeOutput()
    second[second.count - 1] ^= 1
    #expect(
      throws: SealedInput.Failure(fault: .malformed, detail: "a record that does not open")
    ) { try far.receive(first + second) }
    // What came before it did.
    #expect(try far.frames.next() == Data([7]))
    #expect(try far.frames.next() == nil)
    try near.seal(FrameDecoder.length(1) + [9])
    far.rest = []
    try far.receive(near.takeOutput())
    #expect(try far.frames.next() == nil)
  }

  /// It says so as soon as two bytes have come, and keeps nothing for it.
  @Test(arguments: [0, 1, 16, 47, 49, 65_535]) func refusesAnyOtherLengthAtOnce(byteCount: Int) throws {
    let length = [UInt8(byteCount & 0xff), UInt8(byteCount >> 8)]
    let far = try Side(handshake(isDialler: false))
    #expect(throws: SealedInput.Failure(fault: .malformed, detail: "no handshake")) {
      try far.receive(length)
    }
  }

  @Test func refusesAnotherIntroduction() throws {
    let near = try Side(handshake(isDialler: true, prologue: [1]))
    let far = try Side(handshake(isDialler: false, prologue: [2]))
    let failure = #expect(throws: SealedInput.Failure.self) { try far.receive(near.takeOutput()) }
    #expect(failure?.fault == .certificateNotFound)
    #expect(far.output.isEmpty)
  }
}
