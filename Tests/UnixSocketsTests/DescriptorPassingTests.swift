import Foundation
import TestSupport
import Testing
import UnixSockets

struct DescriptorPassingTests {
  static let countMax = DescriptorList.messageCountMax

  @Test func passesDescriptorsInTheirOrder() throws {
    let pair = try SocketPair()
    let one = try Pipe()
    let two = try Pipe()
    var sent = DescriptorList()
    sent.append(try two.readEnd.duplicate())
    sent.append(try one.writeEnd.duplicate())
    sent.append(try one.readEnd.duplicate())
    let numbers = [two.readEnd.number, one.writeEnd.number, one.readEnd.number]
    try pair.first.send(pattern(5), sent)
    var received = try pair.second.receive(100, descriptorsMax: 3)
    #expect(received.bytes == pattern(5))
    #expect(received.descriptors.count == 3)
    for number in numbers {
      guard let descriptor = received.descriptors.popFirst() else { throw TestFailure("too few") }
      #expect(OpenFile(descriptor.number) == OpenFile(number))
      #expect(isClosedOnExec(descriptor.number))
    }
  }

  @Test(arguments: [1, 2, 3, 8, countMax])
  func takesExactlyAsManyAsAllowed(count: Int) throws {
    let pair = try SocketPair()
    let pipe = try Pipe()
    let file = try #require(OpenFile(pipe.readEnd.number))
    do {
      let sent = try DescriptorList(count, of: pipe.readEnd)
      try pair.first.send(pattern(1), sent)
      let received = try pair.second.receive(1, descriptorsMax: count)
      #expect(received.descriptors.count == count)
      #expect(try file.descriptorCount == 2 + 2 * count)
    }
    #expect(try file.descriptorCount == 2)
  }

  @Test(arguments: [
    (0, 1), (0, 2), (0, countMax), (1, 2), (1, 3), (2, 3), (2, countMax), (countMax - 1, countMax),
  ])
  func closesAllWhenMoreComeThanAllowed(allowed: Int, count: Int) throws {
    let pair = try SocketPair()
    let pipe = try Pipe()
    let file = try #require(OpenFile(pipe.readEnd.number))
    do {
      let sent = try DescriptorList(count, of: pipe.readEnd)
      try pair.first.send(pattern(3), sent)
    }
    #expect {
      _ = try pair.second.receive(100, descriptorsMax: allowed)
    } throws: { error in
      guard case SocketError.tooManyDescriptors(let atLeast, allowed) = error else { return false }
      return allowed + 1...count ~= atLeast
    }
    #expect(try file.descriptorCount == 2)
    // The connection itself is whole.
    try pair.first.write(pattern(4), deadline: minutes)
    #expect(try pair.second.receive(100, descriptorsMax: 0).bytes == pattern(4))
  }

  @Test func refusesToSendOneMoreThanAMessageCarries() throws {
    let pair = try SocketPair()
    let pipe = try Pipe()
    let sent = try DescriptorList(Self.countMax + 1, of: pipe.readEnd)
    #expect(throws: SocketError.tooManyDescriptors(atLeast: Self.countMax + 1, countMax: Self.countMax)) {
      try pair.first.send(pattern(1), sent)
    }
    #expect(try pair.second.receiveIfReady(1) == nil)
  }

  @Test func refusesWhatThisProcessHasNoRoomForAndClosesTheRest() throws {
    let folder = TemporaryDirectory()
    let listener = try UnixListener(path: folder["s"])
    let pipe = try Pipe()
    for (room, expected) in [(0, "truncated"), (2, "truncated"), (3, "received 3")] {
      let peer = try PeerProcess("receive with room for", folder["s"], String(room))
      let connection = try listener.accept(deadline: minutes)
      let sent = try DescriptorList(3, of: pipe.readEnd)
      try connection.send(pattern(1), sent)
      #expect(try peer.line() == expected)
      #expect(try peer.line() == "0 more open")
    }
  }

  @Test func closesDescriptorsThatAPlainReadMeets() throws {
    let pair = try SocketPair()
    let pipe = try Pipe()
    let file = try #require(OpenFile(pipe.readEnd.number))
    do {
      let sent = try DescriptorList(4, of: pipe.readEnd)
      try pair.first.send(pattern(3), sent)
    }
    #expect(try pair.second.readWhole(3, deadline: minutes) == pattern(3))
    #expect(try file.descriptorCount == 2)
  }

  @Test func closesDescriptorsThatNobodyReceives() throws {
    let pair = try SocketPair()
    let readEnd: Descriptor
    do {
      let pipe = try Pipe()
      readEnd = try pipe.readEnd.duplicate()
      let sent = try DescriptorList(2, of: pipe.writeEnd)
      try pair.first.send(pattern(3), sent)
    }
    // Only those on their way hold the pipe's other end now.
    _ = consume pair
    var byte: UInt8 = 0
    #expect(read(readEnd.number, &byte, 1) == 0)
  }

  @Test func comesWithTheFirstByteAndBeforeWhatWasSentAfter() throws {
    let pair = try SocketPair()
    let pipe = try Pipe()
    let sent = try DescriptorList(1, of: pipe.readEnd)
    try pair.first.send(Array("with".utf8), sent)
    try pair.first.write(Array("after".utf8), deadline: minutes)
    let first = try pair.second.receive(1, descriptorsMax: 1)
    #expect(first.bytes == Array("w".utf8))
    #expect(first.descriptors.count == 1)
    let rest = try pair.second.readWhole(8, deadline: minutes)
    #expect(rest == Array("ithafter".utf8))

    try pair.first.send(Array("with".utf8), sent)
    try pair.first.write(Array("after".utf8), deadline: minutes)
    let whole = try pair.second.receive(100, descriptorsMax: 1)
    #expect(whole.bytes == Array("with".utf8))
    #expect(whole.descriptors.count == 1)
  }

  @Test func twoMessagesKeepTheirDescriptorsApart() throws {
    let pair = try SocketPair()
    let one = try Pipe()
    let two = try Pipe()
    do {
      let first = try DescriptorList(1, of: one.readEnd)
      let second = try DescriptorList(1, of: two.readEnd)
      try pair.first.send(pattern(2), first)
      try pair.first.send(pattern(2), second)
    }
    for number in [one.readEnd.number, two.readEnd.number] {
      var received = try pair.second.receive(100, descriptorsMax: 1)
      #expect(received.bytes == pattern(2))
      let descriptor = received.descriptors.popFirst()
      #expect(descriptor.file == OpenFile(number))
    }
  }

  @Test func sendsMoreBytesThanTheSocketTakesAtOnce() throws {
    let pair = try SocketPair()
    let pipe = try Pipe()
    let bytes = pattern(3_000_001)
    let sender = SharedConnection(pair.first)
    let second = pair.second
    let number = pipe.readEnd.number
    let running = Running {
      var sent = DescriptorList()
      sent.append(try Descriptor(adopting: dup(number)))
      try sender.connection.send(bytes, sent)
    }
    var received = [UInt8]()
    var descriptorCount = 0
    while received.count < bytes.count {
      let part = try second.receive(1 << 16, descriptorsMax: 1)
      try #require(!part.bytes.isEmpty)
      if !part.descriptors.isEmpty { #expect(received.isEmpty) }
      descriptorCount += part.descriptors.count
      received += part.bytes
    }
    try running.value()
    #expect(received == bytes)
    #expect(descriptorCount == 1)
  }

  @Test func sendsNothingToAFullSocket() throws {
    let pair = try SocketPair()
    let pipe = try Pipe()
    try pair.first.fill()
    let sent = try DescriptorList(1, of: pipe.readEnd)
    let byte: [UInt8] = [1]
    #expect(try byte.withUnsafeBytes { try pair.first.sendIfReady($0, descriptors: sent) } == nil)
    #expect(throws: SocketError.timedOut(operation: "send")) {
      try byte.withUnsafeBytes {
        try pair.first.send($0, descriptors: sent, deadline: .now + .milliseconds(5))
      }
    }
    pair.first.shutdown(.writing)
    // Descriptors among what is left would be refused.
    while try !pair.second.receive(1 << 20, descriptorsMax: 0).bytes.isEmpty {}
  }

  @Test func receivesNothingFromAnEmptySocketAndTheEndFromAnEndedOne() throws {
    let pair = try SocketPair()
    #expect(try pair.second.receiveIfReady(10) == nil)
    let buffer = UnsafeMutableRawBufferPointer.allocate(byteCount: 10, alignment: 1)
    defer { buffer.deallocate() }
    #expect(throws: SocketError.timedOut(operation: "receive")) {
      _ = try pair.second.receive(into: buffer, descriptorsMax: 1, deadline: .now + .milliseconds(5))
    }
    try pair.first.write(pattern(7), deadline: minutes)
    #expect(try pair.second.receiveIfReady(10) == 7)
    pair.first.shutdown(.writing)
    #expect(try pair.second.receiveIfReady(10) == 0)
    #expect(try pair.second.receive(10, descriptorsMax: 1).bytes.isEmpty)
  }

  @Test func anotherProcessUsesADescriptorThatItWasHanded() throws {
    let folder = TemporaryDirectory()
    let listener = try UnixListener(path: folder["s"])
    let peer = try PeerProcess("use descriptor", folder["s"], "16")
    let connection = try listener.accept(deadline: minutes)
    let lane = try SocketPair()
    let mine = lane.first
    var sent = DescriptorList()
    sent.append(lane.second.takeDescriptor())
    try connection.send(pattern(1), sent)
    _ = consume sent
    let text = Array("through the descriptor".utf8)
    #expect(try mine.readWhole(text.count, deadline: minutes) == text)
    #expect(try peer.line() == "used")
    peer.kill()
    // Nobody here kept the other end.
    #expect(try mine.read(1, deadline: minutes).isEmpty)
  }

  @Test func descriptorsOutliveTheSender() throws {
    let folder = TemporaryDirectory()
    let listener = try UnixListener(path: folder["s"])
    let peer = try PeerProcess("send descriptor", folder["s"], "3")
    let connection = try listener.accept(deadline: minutes)
    #expect(try peer.line() == "sent")
    peer.kill()
    var received = try connection.receive(10, descriptorsMax: 1)
    #expect(received.bytes.count == 3)
    guard let descriptor = received.descriptors.popFirst() else { throw TestFailure("no descriptor") }
    let end = try UnixConnection(adopting: descriptor)
    // What its standard input was is still connected to us.
    try end.write(Array("still here\n".utf8), deadline: minutes)
    #expect(try peer.line() == "still here")
    #expect(try connection.receive(10, descriptorsMax: 1).bytes.isEmpty)
  }
}
