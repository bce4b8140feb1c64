import Foundation
import PushWire
import Testing

struct FrameTests {
  static let secret = Data(0..<32)
  static let channel = ChannelID(0xa0...0xaf)
  static let token = PushToken(number: 0x4f3a_9c21_09be, relay: .local, secret: secret)

  // MARK: The examples of the page, encoded there by protoc

  static let c = "0a10a0a1a2a3a4a5a6a7a8a9aaabacadaeaf"
  static let deviceExamples: [(DeviceFrame, String)] = [
    (
      .hello(DeviceFrame.Hello(deviceSecret: secret, heartbeatSeconds: 240)),
      "0a2708011220000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f20f001"
    ),
    (.open(channel, isKnown: false, taken: 0), "1212" + c),
    (.taken(channel, through: 1), "2214" + c + "1001"),
    (.close(channel), "1a12" + c),
  ]
  static let relayExamples: [(RelayFrame, String)] = [
    (.welcome(heartbeatSeconds: 240, channelsMax: 256), "0a0608f001108002"),
    (
      .opened(channel, token: token.text, host: nil),
      "125e" + c + "124a34663361396332312030396265206170702e6764707573682e6c6f63616c20"
        + "41414543417751464267634943516f4c4441304f4478415245684d554652595847426b6147787764486838"
    ),
    (
      .event(channel, sequence: 1, .message(PushMessage(body: Data("hi".utf8), accepted: 1_795_478_400_000))),
      "2221" + c + "10011a0b0a0268692880d8e8d6a034"
    ),
    (.event(channel, sequence: 2, .message(PushMessage(body: Data(), accepted: 0))), "2216" + c + "10021a00"),
    (.event(channel, sequence: 3, .closed), "2216" + c + "10032a00"),
  ]

  @Test func theExamplesOfThePage() throws {
    for (frame, text) in Self.deviceExamples {
      #expect(frame.bytes.hex == text)
      #expect(try DeviceFrame(bytes: frame.bytes) == frame)
    }
    for (frame, text) in Self.relayExamples {
      #expect(frame.bytes.hex == text)
      #expect(try RelayFrame(bytes: frame.bytes) == frame)
    }
    #expect(Self.token.text == "4f3a9c21 09be app.gdpush.local AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8")
  }

  @Test func everyFrameComesBack() throws {
    var generator = SystemRandomNumberGenerator()
    let device: [DeviceFrame] = [
      .hello(
        DeviceFrame.Hello(
          deviceSecret: Self.secret, admissionKey: Data(repeating: 7, count: 256), heartbeatSeconds: 3600)),
      .open(.random(), isKnown: true, taken: .max), .taken(.random(), through: .max), .close(.random()),
    ]
    for frame in device { #expect(try DeviceFrame(bytes: frame.bytes) == frame) }
    let message = PushMessage(
      body: Data((0..<FrameLimits.body).map { _ in .random(in: 0...255, using: &generator) }),
      encoding: .aes128gcm, urgency: .veryLow, topic: String(repeating: "x", count: 32), accepted: .max)
    let relay: [RelayFrame] =
      [
        .welcome(heartbeatSeconds: 10, channelsMax: 0),
        .opened(.random(), token: PushToken(relay: .local).text, host: "relay.example"),
        .failed(.random(), code: 502),
        .event(.random(), sequence: .max, .message(message)),
        .event(.random(), sequence: 1, .pingFailed(605)),
        .event(.random(), sequence: 1, .error(599)),
      ] + GoodbyeReason.allCases.map { .goodbye($0, retryAfterSeconds: 3600) }
    for frame in relay {
      #expect(try RelayFrame(bytes: frame.bytes) == frame)
      #expect(frame.bytes.count <= FrameLimits.relayMessage)
    }
  }

  // MARK: Malformed

  @Test(arguments: [
    ("", "nothing"), ("00", "no field"), ("ff", "a cut number"), ("0a27", "a cut message"),
    ("2a00", "an unknown kind"),
    ("0a00", "no version, and so another"), ("1200", "no channel"),
    ("12110a0f" + String(repeating: "00", count: 15), "15 bytes"),
    ("12130a11" + String(repeating: "00", count: 17), "17 bytes"), ("1a00", "no channel"),
    ("2200", "no channel"),
    ("0a02080112", "bytes behind it"),
    ("0a260801121f" + String(repeating: "00", count: 31) + "20f001", "31 bytes of secret"),
    ("0a260801" + "1220" + String(repeating: "00", count: 32) + "2009", "a heartbeat of 9 s"),
    ("0a270801" + "1220" + String(repeating: "00", count: 32) + "20911c", "a heartbeat of 3,601 s"),
  ])
  func deviceFramesThatAreNone(hex: String, what: String) {
    // Another version is for the receiver to judge, and nothing more is read.
    if hex == "0a00" {
      #expect(throws: Never.self) { try DeviceFrame(bytes: Data(hex: hex)) }
    } else {
      #expect(throws: MalformedFrame.self, "\(what)") { try DeviceFrame(bytes: Data(hex: hex)) }
    }
  }

  @Test(arguments: [
    "", "1a00", "2a",
    "0a0408091001",  // a heartbeat of 9 s
    "1212" + FrameTests.c,  // no token
    "1217" + FrameTests.c + "1203612062",  // a token of two components
    "1a15" + FrameTests.c + "10f303",  // code 499
    "1a15" + FrameTests.c + "10d804",  // code 600
    "2214" + FrameTests.c + "1a00",  // number 0
    "2214" + FrameTests.c + "1001",  // no kind of event
    "2217" + FrameTests.c + "100120d704",  // ping code 599
    "2219" + FrameTests.c + "10011a030a01ff",  // a text that is not UTF-8
    "2218" + FrameTests.c + "10011a021007",  // an unknown encoding
    "2219" + FrameTests.c + "10011a03220121",  // a topic with !
  ])
  func relayFramesThatAreNone(hex: String) {
    #expect(throws: MalformedFrame.self) { try RelayFrame(bytes: Data(hex: hex)) }
  }

  @Test func tooLongFramesAreNotParsed() {
    let device = #expect(throws: MalformedFrame.self) {
      try DeviceFrame(bytes: Data(count: FrameLimits.deviceMessage + 1))
    }
    #expect(device?.reason == "longer than 4096 bytes")
    let relay = #expect(throws: MalformedFrame.self) {
      try RelayFrame(bytes: Data(count: FrameLimits.relayMessage + 1))
    }
    #expect(relay?.reason == "longer than 1052672 bytes")
  }

  @Test func fieldsOfALaterVersionAreIgnored() throws {
    // Field 15 of Close, and field 99 beside it.
    let bytes = Data(hex: "1a14" + Self.c + "7801" + "9806" + "01")
    #expect(try DeviceFrame(bytes: bytes) == .close(Self.channel))
    // An urgency and a reason that are not known yet.
    #expect(
      try RelayFrame(bytes: Data(hex: "2218" + Self.c + "10011a021809"))
        == .event(Self.channel, sequence: 1, .message(PushMessage(body: Data(), accepted: 0))))
    #expect(try RelayFrame(bytes: Data(hex: "2a020863")) == .goodbye(.failed, retryAfterSeconds: 0))
  }

  /// Each bit of each example is changed: a frame with a value out of range never comes out.
  @Test func changedBitsGiveAFrameOrAnError() throws {
    for (_, text) in Self.deviceExamples {
      let bytes = Data(hex: text)
      for bit in 0..<bytes.count * 8 {
        var changed = bytes
        changed[bit / 8] ^= 1 << UInt8(bit % 8)
        guard let frame = try? DeviceFrame(bytes: changed) else { continue }
        if case .hello(let hello) = frame, hello.version != 1 { continue }
        #expect(try DeviceFrame(bytes: frame.bytes) == frame)
      }
    }
    for (_, text) in Self.relayExamples {
      let bytes = Data(hex: text)
      for bit in 0..<bytes.count * 8 {
        var changed = bytes
        changed[bit / 8] ^= 1 << UInt8(bit % 8)
        guard let frame = try? RelayFrame(bytes: changed) else { continue }
        #expect(try RelayFrame(bytes: frame.bytes) == frame)
      }
    }
  }
}

extension Data {
  init(hex: String) {
    precondition(hex.utf8.count.isMultiple(of: 2))
    self.init()
    var rest = hex[...]
    while !rest.isEmpty {
      append(UInt8(rest.prefix(2), radix: 16)!)
      rest = rest.dropFirst(2)
    }
  }

  var hex: String { map { String($0 >> 4, radix: 16) + String($0 & 15, radix: 16) }.joined() }
}
