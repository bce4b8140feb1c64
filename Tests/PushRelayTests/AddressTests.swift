import Testing

@testable import PushRelay

struct AddressTests {
  @Test(arguments: [
    "8.8.8.8", "1.1.1.1", "100.63.255.255", "100.128.0.0", "172.15.255.255", "172.32.0.0", "192.0.1.0",
    "223.255.255.255", "2606:4700::1111", "2a00:1450:4001::1", "::ffff:8.8.8.8", "64:ff9b::8.8.8.8",
    "2002:808:808::1",
  ])
  func globalAddressesMayBeCalled(text: String) throws {
    #expect(AddressPolicy().permits(try #require(IPAddress(text))))
  }

  @Test(arguments: [
    "0.0.0.0", "0.1.2.3", "10.0.0.1", "100.64.0.1", "127.0.0.1", "127.255.255.255", "169.254.169.254",
    "172.16.0.1", "172.31.255.255", "192.0.0.1", "192.0.2.1", "192.88.99.1", "192.168.1.1", "198.18.0.1",
    "198.19.255.255", "198.51.100.1", "203.0.113.9", "224.0.0.1", "239.1.1.1", "240.0.0.1", "255.255.255.255",
    "::", "::1", "::7f00:1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "64:ff9b::169.254.169.254",
    "64:ff9b:1::808:808", "2002:7f00:1::", "2002:a00:1::1", "2001::1", "2001:db8::1", "3fff::1", "fc00::1",
    "fd12::1", "fe80::1", "fec0::1", "ff02::1", "100::1", "4000::1",
  ])
  func specialAddressesMayNot(text: String) throws {
    #expect(!AddressPolicy().permits(try #require(IPAddress(text))))
  }

  @Test func theOperatorAllowsNetworks() throws {
    let policy = AddressPolicy(allowed: [
      try #require(Network("10.1.0.0/16")), try #require(Network("::1")), try #require(Network("fd00::/8")),
    ])
    for text in ["10.1.2.3", "::1", "fd12::1", "8.8.8.8", "::ffff:10.1.2.3"] {
      #expect(policy.permits(try #require(IPAddress(text))), "\(text)")
    }
    for text in ["10.2.0.1", "::2", "fc00::1", "127.0.0.1", "::ffff:10.2.0.1"] {
      #expect(!policy.permits(try #require(IPAddress(text))), "\(text)")
    }
  }

  @Test(arguments: [
    "", "1", "1.2.3", "1.2.3.4.5", "256.1.1.1", "01.2.3.4", "0x7f.1", "2130706433", "::g", "1::2::3",
    "fe80::1%eth0",
    " 1.2.3.4", "[::1]",
  ])
  func textsThatAreNoAddress(text: String) {
    #expect(IPAddress(text) == nil)
  }

  @Test func networks() throws {
    #expect(try #require(Network("0.0.0.0/0")).contains(try #require(IPAddress("255.1.2.3"))))
    #expect(try #require(Network("128.0.0.0/1")).contains(try #require(IPAddress("128.0.0.0"))))
    #expect(!(try #require(Network("128.0.0.0/1")).contains(try #require(IPAddress("127.255.255.255")))))
    #expect(!(try #require(Network("::/0")).contains(try #require(IPAddress("1.2.3.4")))))
    #expect(Network("10.0.0.0/8")?.description == "10.0.0.0/8")
    for text in [
      "10.0.0.1/8", "10.0.0.0/33", "::/129", "10.0.0.0/", "10.0.0.0/-1", "10.0.0.0/+8", "/8", "a/8",
    ] {
      #expect(Network(text) == nil, "\(text)")
    }
  }

  @Test func addressesHaveAText() throws {
    for text in ["1.2.3.4", "::1", "2001:db8::ff00:42:8329"] {
      #expect(try #require(IPAddress(text)).description == text)
    }
  }
}
