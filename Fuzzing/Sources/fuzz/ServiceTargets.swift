import Foundation

@testable import ServiceValues
@testable import ServiceWire
@testable import SodiumPrimitives

extension Target {
  /// A stream cut into frames, and each as a message of both connections: what is accepted is written as it was read.
  static let frames = Target(
    name: "frames", inputByteCountMax: 4096,
    seeds: {
      let request = WireChannelMessage.with {
        $0.request = .with { $0.id = Identifier(high: 1, low: 2).data }
      }
      let question = WireBrokerMessage.with {
        $0.question = .with {
          $0.number = 1
          $0.find = WireFind()
        }
      }
      return [
        Seed("request", try [5] + request.frame(byteCountMax: 1000)),
        Seed("question", try [5] + question.frame(byteCountMax: 1000)),
        Seed("too-long", [5, 255, 255, 255, 255], isAccepted: false),
      ]
    },
    accepts: { bytes in
      var input = Input(bytes)
      let step = Int(input.byte()) + 1
      var decoder = FrameDecoder(byteCountMax: 2048)
      var rest = input.remainder()[...]
      var isAccepted = true
      while !rest.isEmpty {
        decoder.append(rest.prefix(step))
        rest = rest.dropFirst(step)
        do {
          while let frame = try decoder.next() {
            require((1...2048).contains(frame.count), "a frame beyond its limit")
            isAccepted = reads(WireChannelMessage.self, frame) || reads(WireBrokerMessage.self, frame)
          }
        } catch {
          return false
        }
      }
      return isAccepted && !decoder.isWithinFrame
    })

  private static func reads<Message: WireMessage & Equatable>(_ type: Message.Type, _ frame: Data) -> Bool {
    guard let message = try? type.read(frame, elementCountMax: 1000),
      let written = try? message.frame(byteCountMax: 1 << 20)
    else {
      return false
    }
    let again = try? type.read(written.dropFirst(FrameDecoder.lengthByteCount), elementCountMax: 1000)
    // Not a number is different from itself.
    require(
      again.map { (try? $0.frame(byteCountMax: 1 << 20)) != nil } ?? false, "what was written is not read")
    return true
  }

  /// Messages of a peer that keeps to nothing: an exchange and deliveries close, and never end the process.
  static let channel = Target(
    name: "channel", inputByteCountMax: 4096,
    seeds: {
      let id = Identifier(high: 0, low: 1).data
      let messages: [WireChannelMessage] = [
        .with { $0.ping.number = 2 },
        .with {
          $0.request = .with {
            $0.id = id
            $0.serviceID = "com.example.s"
          }
        },
        .with { $0.accepted.id = Identifier(high: 9, low: 0).data },
        .with { $0.reply.id = Identifier(high: 9, low: 0).data },
        .with { $0.inquiry.id = Identifier(high: 5, low: 5).data }, .with { $0.cancel.id = id },
        .with { $0.replyAccepted.id = id },
        .with { $0.credit.more = 5 }, .with { $0.ping.number = 1 },
      ]
      var script = Script()
      for message in messages { script.addPiece(try Array(message.serializedData())) }
      return [Seed("conversation", script.bytes), Seed("deliveries", try DeliveryPeer.seed())]
    },
    accepts: { bytes in
      var input = Input(bytes)
      var exchange = Exchange(
        ownAppID: "com.example.a", peerAppID: "com.example.b", process: Identifier(high: 0, low: 1))
      let number = ChannelNumber(1)
      let ticket = Data(repeating: 1, count: 32)
      _ = exchange.channelOpened(number, ticket: ticket, now: 0)
      _ = exchange.receive(
        .with {
          $0.hello = .with {
            $0.version = Exchange.versionMax
            $0.ticket = ticket
            $0.appID = "com.example.b"
            $0.process = Identifier(high: 0, low: 2).data
            $0.requests = 3
            $0.frameByteCount = 1 << 16
          }
        }, on: number, now: 0)
      require(exchange.openChannelCount == 1, "an honest beginning is refused")
      for n: UInt64 in 0..<4 { _ = try exchange.submit(.with { $0.id = Identifier(high: 9, low: n).data }) }
      var peer = DeliveryPeer(number)
      var now: UInt64 = 0
      while !input.isEmpty, exchange.channelCount == 1 {
        now += 1
        guard let message = try? WireChannelMessage.read(Data(input.piece()), elementCountMax: 1000) else {
          continue
        }
        if Deliveries.isDelivery(message) {
          peer.receive(message, choice: now)
          guard peer.deliveries.isOpen(number) else { return false }
          continue
        }
        for output in exchange.receive(message, on: number, now: now) {
          guard case .provider(let id, .arrived) = output else { continue }
          _ = exchange.admit(id)
          if exchange.begin(id), now % 2 == 0 { _ = try exchange.reply(.with { $0.id = id.data }, now: now) }
        }
        require(exchange.incomingCount <= exchange.limits.requestCountMax, "more requests than were granted")
      }
      return exchange.channelCount == 1
    })

  /// Params from the wire: what is accepted is written as it was read, and is within the limits.
  static let values = Target(
    name: "values", inputByteCountMax: 4096,
    seeds: {
      let value: ServiceValue = [
        "a": [1, 2], "b": .bytes([1]), "c": ["d": .null, "e": true], "f": .number(1.5),
      ]
      return [Seed("object", try Array(WireValue(value).serializedData()))]
    },
    accepts: { bytes in
      guard let wire = try? WireValue(serializedBytes: bytes), let value = try? ServiceValue(wire) else {
        return false
      }
      require((try? value.validate()) != nil, "a value that is none was accepted")
      require(try ServiceValue(WireValue(value)) == value, "a value is written differently")
      let text = try value.jsonText()
      require(try ServiceValue(jsonText: text) == value, "a value is another one as JSON")
      return true
    })

  /// Definitions as apps register them.
  static let definitions = Target(
    name: "definitions", inputByteCountMax: 4096,
    seeds: {
      WellKnownService.allCases.map { Seed($0.definition.serviceID.text, Array($0.definition.jsonText.utf8)) }
    },
    accepts: { bytes in
      guard let definition = try? ServiceDefinition(json: bytes) else { return false }
      require(
        try ServiceDefinition(jsonText: definition.jsonText) == definition,
        "a definition is written differently")
      return true
    })

  /// The broker's files: the first byte says which.
  static let registry = Target(
    name: "registry", inputByteCountMax: 4096,
    seeds: {
      var records = BrokerRecords()
      let appID = "com.example.a"
      records.apps[appID] = .init(
        publicKey: Data(repeating: 1, count: 32), activationUser: "u", enrolled: 5,
        registration: .with {
          $0.name = "A"
          $0.servers = [
            .with {
              $0.host = "h"
              $0.port = 1
              $0.priority = 1
            }
          ]
        })
      let rule = WireRule.with {
        $0.provider = appID
        $0.effect = .deny
      }
      records.policy = try BrokerPolicy(rules: [rule])
      records.programs[appID] = .with { $0.path = "/a" }
      var forgotten = BrokerRecords()
      try forgotten.decodeForgotten(
        Data(
          try WireForgottenApps.with {
            $0.appIds = [appID]
            $0.count = 5
          }.serializedBytes() as [UInt8]))
      return [
        Seed("forgotten", [3] + Array(try forgotten.encoded(.forgotten) ?? Data())),
        Seed("registry", [0] + Array(try records.encoded(.app(appID)) ?? Data())),
        Seed("policy", [1] + Array(try records.encoded(.policy) ?? Data())),
        Seed("program", [2] + Array(try records.encoded(.program(appID)) ?? Data())),
      ]
    },
    accepts: { bytes in
      var input = Input(bytes)
      let kind = input.byte() % 4
      let file = Data(input.remainder())
      func read(_ file: Data) throws -> (records: BrokerRecords, part: BrokerRecords.Part) {
        var records = BrokerRecords()
        switch kind {
        case 0:
          let appID = try records.decodeApp(file)
          return (records, .app(appID))
        case 1:
          try records.decodePolicy(file)
          return (records, .policy)
        case 2:
          let appID = try records.decodeProgram(file)
          return (records, .program(appID))
        default:
          try records.decodeForgotten(file)
          return (records, .forgotten)
        }
      }
      guard let (records, part) = try? read(file) else { return false }
      require(try read(records.encoded(part) ?? Data()).records == records, "records are written differently")
      return true
    })
}
