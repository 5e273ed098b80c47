"""The table of MQ structures, read by layout.py alone. Facts of the published layouts, nothing else.

For each structure its name, then per version the fields that it adds: `Name type default`. Types: i4 MQLONG, i4xN an
array of them, i8 MQHMSG, n8 MQINT64, cN characters, bN bytes, p pointer, V MQCHARV, NAME/V an embedded structure. No
default means zero, empty or NULL. A default of one blank fills the field.
"""

TABLE = """
MQCHARV
  1: VSPtr p | VSOffset i4 | VSBufSize i4 | VSLength i4 | VSCCSID i4 -3
MQCNO
  1: StrucId c4 "CNO " | Version i4 1 | Options i4
  2: ClientConnOffset i4 | ClientConnPtr p
  3: ConnTag b128
  4: SSLConfigPtr p | SSLConfigOffset i4
  5: ConnectionId b24 | SecurityParmsOffset i4 | SecurityParmsPtr p
  6: CCDTUrlPtr p | CCDTUrlOffset i4 | CCDTUrlLength i4 | Reserved b8
  7: ApplName c28 " " | Reserved2 b4
  8: BalanceParmsPtr p | BalanceParmsOffset i4 | Reserved3 b4
MQCSP
  1: StrucId c4 "CSP " | Version i4 1 | AuthenticationType i4 | Reserved1 b4 | CSPUserIdPtr p | CSPUserIdOffset i4 |
     CSPUserIdLength i4 | Reserved2 b8 | CSPPasswordPtr p | CSPPasswordOffset i4 | CSPPasswordLength i4
  2: Reserved3 b8 | InitialKeyPtr p | InitialKeyOffset i4 | InitialKeyLength i4
  3: Reserved4 b8 | TokenPtr p | TokenOffset i4 | TokenLength i4
MQOD
  1: StrucId c4 "OD  " | Version i4 1 | ObjectType i4 1 | ObjectName c48 | ObjectQMgrName c48 |
     DynamicQName c48 "AMQ.*" | AlternateUserId c12
  2: RecsPresent i4 | KnownDestCount i4 | UnknownDestCount i4 | InvalidDestCount i4 | ObjectRecOffset i4 |
     ResponseRecOffset i4 | ObjectRecPtr p | ResponseRecPtr p
  3: AlternateSecurityId b40 | ResolvedQName c48 | ResolvedQMgrName c48
  4: ObjectString V | SelectionString V | ResObjectString V | ResolvedType i4
MQMD
  1: StrucId c4 "MD  " | Version i4 1 | Report i4 | MsgType i4 8 | Expiry i4 -1 | Feedback i4 | Encoding i4 546 |
     CodedCharSetId i4 | Format c8 " " | Priority i4 -1 | Persistence i4 2 | MsgId b24 | CorrelId b24 |
     BackoutCount i4 | ReplyToQ c48 | ReplyToQMgr c48 | UserIdentifier c12 | AccountingToken b32 |
     ApplIdentityData c32 | PutApplType i4 | PutApplName c28 | PutDate c8 | PutTime c8 | ApplOriginData c4
  2: GroupId b24 | MsgSeqNumber i4 1 | Offset i4 | MsgFlags i4 | OriginalLength i4 -1
MQPMO
  1: StrucId c4 "PMO " | Version i4 1 | Options i4 | Timeout i4 -1 | Context i4 | KnownDestCount i4 |
     UnknownDestCount i4 | InvalidDestCount i4 | ResolvedQName c48 | ResolvedQMgrName c48
  2: RecsPresent i4 | PutMsgRecFields i4 | PutMsgRecOffset i4 | ResponseRecOffset i4 | PutMsgRecPtr p |
     ResponseRecPtr p
  3: OriginalMsgHandle i8 | NewMsgHandle i8 | Action i4 | PubLevel i4 9
MQGMO
  1: StrucId c4 "GMO " | Version i4 1 | Options i4 | WaitInterval i4 | Signal1 i4 | Signal2 i4 | ResolvedQName c48
  2: MatchOptions i4 3 | GroupStatus c1 " " | SegmentStatus c1 " " | Segmentation c1 " " | Reserved1 c1 " "
  3: MsgToken b16 | ReturnedLength i4 -1
  4: Reserved2 i4 | MsgHandle i8
MQSD
  1: StrucId c4 "SD  " | Version i4 1 | Options i4 | ObjectName c48 | AlternateUserId c12 | AlternateSecurityId b40 |
     SubExpiry i4 -1 | ObjectString V | SubName V | SubUserData V | SubCorrelId b24 | PubPriority i4 -3 |
     PubAccountingToken b32 | PubApplIdentityData c32 | SelectionString V | SubLevel i4 1 | ResObjectString V
MQSRO
  1: StrucId c4 "SRO " | Version i4 1 | Options i4 | NumPubs i4
MQSTS
  1: StrucId c4 "STAT" | Version i4 1 | CompCode i4 | Reason i4 | PutSuccessCount i4 | PutWarningCount i4 |
     PutFailureCount i4 | ObjectType i4 1 | ObjectName c48 | ObjectQMgrName c48 | ResolvedObjectName c48 |
     ResolvedQMgrName c48
  2: ObjectString V | SubName V | OpenOptions i4 | SubOptions i4
MQCBD
  1: StrucId c4 "CBD " | Version i4 1 | CallbackType i4 1 | Options i4 | CallbackArea p | CallbackFunction p |
     CallbackName c128 | MaxMsgLength i4 -1
MQCBC
  1: StrucId c4 | Version i4 | CallType i4 | Hobj i4 | CallbackArea p | ConnectionArea p | CompCode i4 | Reason i4 |
     State i4 | DataLength i4 | BufferLength i4 | Flags i4
  2: ReconnectDelay i4
MQCTLO
  1: StrucId c4 "CTLO" | Version i4 1 | Options i4 | Reserved i4 -1 | ConnectionArea p
MQCMHO
  1: StrucId c4 "CMHO" | Version i4 1 | Options i4
MQDMHO
  1: StrucId c4 "DMHO" | Version i4 1 | Options i4
MQSMPO
  1: StrucId c4 "SMPO" | Version i4 1 | Options i4 | ValueEncoding i4 546 | ValueCCSID i4 -3
MQIMPO
  1: StrucId c4 "IMPO" | Version i4 1 | Options i4 | RequestedEncoding i4 546 | RequestedCCSID i4 -3 |
     ReturnedEncoding i4 546 | ReturnedCCSID i4 | Reserved1 i4 | ReturnedName V | TypeString c8
MQDMPO
  1: StrucId c4 "DMPO" | Version i4 1 | Options i4
MQPD
  1: StrucId c4 "PD  " | Version i4 1 | Options i4 | Support i4 1 | Context i4 | CopyOptions i4 22
MQBMHO
  1: StrucId c4 "BMHO" | Version i4 1 | Options i4 1
MQMHBO
  1: StrucId c4 "MHBO" | Version i4 1 | Options i4 1
MQBO
  1: StrucId c4 "BO  " | Version i4 1 | Options i4
MQRR
  1: CompCode i4 | Reason i4
MQBNO
  1: StrucId c4 "BNO " | Version i4 1 | ApplType i4 | Timeout i4 -1 | Options i4
MQSCO
  1: StrucId c4 "SCO " | Version i4 1 | KeyRepository c256 | CryptoHardware c256 | AuthInfoRecCount i4 |
     AuthInfoRecOffset i4 | AuthInfoRecPtr p
  2: KeyResetCount i4 | FipsRequired i4
  3: EncryptionPolicySuiteB i4x4 1,0,0,0
  4: CertificateValPolicy i4
  5: CertificateLabel c64
  6: KeyRepoPasswordPtr p | KeyRepoPasswordOffset i4 | KeyRepoPasswordLength i4
  7: HTTPSCertValidation i4 | HTTPSCertRevocation i4 | HTTPSKeyStorePtr p | HTTPSKeyStoreOffset i4 |
     HTTPSKeyStoreLength i4
MQAIR
  1: StrucId c4 "AIR " | Version i4 1 | AuthInfoType i4 1 | AuthInfoConnName c264 | LDAPUserNamePtr p |
     LDAPUserNameOffset i4 | LDAPUserNameLength i4 | LDAPPassword c32
  2: OCSPResponderURL c256
MQCD
  1: ChannelName c20 | Version i4 6 | ChannelType i4 6 | TransportType i4 2 | Desc c64 | QMgrName c48 |
     XmitQName c48 | ShortConnectionName c20 | MCAName c20 | ModeName c8 | TpName c64 | BatchSize i4 50 |
     DiscInterval i4 6000 | ShortRetryCount i4 10 | ShortRetryInterval i4 60 | LongRetryCount i4 999999999 |
     LongRetryInterval i4 1200 | SecurityExit c128 | MsgExit c128 | SendExit c128 | ReceiveExit c128 |
     SeqNumberWrap i4 999999999 | MaxMsgLength i4 4194304 | PutAuthority i4 1 | DataConversion i4 |
     SecurityUserData c32 | MsgUserData c32 | SendUserData c32 | ReceiveUserData c32
  2: UserIdentifier c12 | Password c12 | MCAUserIdentifier c12 | MCAType i4 1 | ConnectionName c264 |
     RemoteUserIdentifier c12 | RemotePassword c12
  3: MsgRetryExit c128 | MsgRetryUserData c32 | MsgRetryCount i4 10 | MsgRetryInterval i4 1000
  4: HeartbeatInterval i4 1 | BatchInterval i4 | NonPersistentMsgSpeed i4 2 | StrucLength i4 2000 |
     ExitNameLength i4 128 | ExitDataLength i4 32 | MsgExitsDefined i4 | SendExitsDefined i4 |
     ReceiveExitsDefined i4 | MsgExitPtr p | MsgUserDataPtr p | SendExitPtr p | SendUserDataPtr p |
     ReceiveExitPtr p | ReceiveUserDataPtr p
  5: ClusterPtr p | ClustersDefined i4 | NetworkPriority i4
  6: LongMCAUserIdLength i4 | LongRemoteUserIdLength i4 | LongMCAUserIdPtr p | LongRemoteUserIdPtr p |
     MCASecurityId b40 | RemoteSecurityId b40
  7: SSLCipherSpec c32 | SSLPeerNamePtr p | SSLPeerNameLength i4 | SSLClientAuth i4 | KeepAliveInterval i4 -1 |
     LocalAddress c48 | BatchHeartbeat i4
  8: HdrCompList i4x2 -1 | MsgCompList i4x16 -1 | CLWLChannelRank i4 | CLWLChannelPriority i4 |
     CLWLChannelWeight i4 50 | ChannelMonitoring i4 | ChannelStatistics i4
  9: SharingConversations i4 10 | PropertyControl i4 | MaxInstances i4 999999999 |
     MaxInstancesPerClient i4 999999999 | ClientChannelWeight i4 | ConnectionAffinity i4 1
  10: BatchDataLimit i4 5000 | UseDLQ i4 2 | DefReconnect i4
  11: CertificateLabel c64
  12: SPLProtection i4
  13: QuantumSafeAlgorithm i4 | QuantumSafeRequired i4
MQDLH
  1: StrucId c4 "DLH " | Version i4 1 | Reason i4 | DestQName c48 | DestQMgrName c48 | Encoding i4 |
     CodedCharSetId i4 | Format c8 " " | PutApplType i4 | PutApplName c28 | PutDate c8 | PutTime c8
MQXQH
  1: StrucId c4 "XQH " | Version i4 1 | RemoteQName c48 | RemoteQMgrName c48 | MsgDesc MQMD/1
MQMDE
  2: StrucId c4 "MDE " | Version i4 2 | StrucLength i4 72 | Encoding i4 546 | CodedCharSetId i4 | Format c8 " " |
     Flags i4 | GroupId b24 | MsgSeqNumber i4 1 | Offset i4 | MsgFlags i4 | OriginalLength i4 -1
MQRFH2
  2: StrucId c4 "RFH " | Version i4 2 | StrucLength i4 36 | Encoding i4 546 | CodedCharSetId i4 -2 | Format c8 " " |
     Flags i4 | NameValueCCSID i4 1208
MQRFH
  1: StrucId c4 "RFH " | Version i4 1 | StrucLength i4 32 | Encoding i4 546 | CodedCharSetId i4 | Format c8 " " |
     Flags i4
MQDH
  1: StrucId c4 "DH  " | Version i4 1 | StrucLength i4 | Encoding i4 | CodedCharSetId i4 | Format c8 " " | Flags i4 |
     PutMsgRecFields i4 | RecsPresent i4 | ObjectRecOffset i4 | PutMsgRecOffset i4
MQOR
  1: ObjectName c48 | ObjectQMgrName c48
MQRMH
  1: StrucId c4 "RMH " | Version i4 1 | StrucLength i4 | Encoding i4 546 | CodedCharSetId i4 | Format c8 " " |
     Flags i4 | ObjectType c8 " " | ObjectInstanceId b24 | SrcEnvLength i4 | SrcEnvOffset i4 | SrcNameLength i4 |
     SrcNameOffset i4 | DestEnvLength i4 | DestEnvOffset i4 | DestNameLength i4 | DestNameOffset i4 |
     DataLogicalLength i4 | DataLogicalOffset i4 | DataLogicalOffset2 i4
MQWIH
  1: StrucId c4 "WIH " | Version i4 1 | StrucLength i4 120 | Encoding i4 | CodedCharSetId i4 | Format c8 " " |
     Flags i4 | ServiceName c32 " " | ServiceStep c8 " " | MsgToken b16 | Reserved c32 " "
MQCIH
  1: StrucId c4 "CIH " | Version i4 2 | StrucLength i4 180 | Encoding i4 | CodedCharSetId i4 | Format c8 " " |
     Flags i4 | ReturnCode i4 | CompCode i4 | Reason i4 | UOWControl i4 273 | GetWaitInterval i4 -2 | LinkType i4 1 |
     OutputDataLength i4 -1 | FacilityKeepTime i4 | ADSDescriptor i4 | ConversationalTask i4 | TaskEndStatus i4 |
     Facility b8 | Function c4 " " | AbendCode c4 " " | Authenticator c8 " " | Reserved1 c8 " " |
     ReplyToFormat c8 " " | RemoteSysId c4 " " | RemoteTransId c4 " " | TransactionId c4 " " | FacilityLike c4 " " |
     AttentionId c4 " " | StartCode c4 " " | CancelCode c4 " " | NextTransactionId c4 " " | Reserved2 c8 " " |
     Reserved3 c8 " "
  2: CursorPosition i4 | ErrorOffset i4 | InputItem i4 | Reserved4 i4
MQIIH
  1: StrucId c4 "IIH " | Version i4 1 | StrucLength i4 84 | Encoding i4 | CodedCharSetId i4 | Format c8 " " |
     Flags i4 | LTermOverride c8 " " | MFSMapName c8 " " | ReplyToFormat c8 " " | Authenticator c8 " " |
     TranInstanceId b16 | TranState c1 " " | CommitMode c1 "0" | SecurityScope c1 "C" | Reserved c1 " "
MQTM
  1: StrucId c4 "TM  " | Version i4 1 | QName c48 | ProcessName c48 | TriggerData c64 | ApplType i4 | ApplId c256 |
     EnvData c128 | UserData c128
MQTMC2
  1: StrucId c4 "TMC " | Version c4 "   2" | QName c48 | ProcessName c48 | TriggerData c64 | ApplType c4 |
     ApplId c256 | EnvData c128 | UserData c128
  2: QMgrName c48
MQPMR
  1: MsgId b24 | CorrelId b24 | GroupId b24 | Feedback i4 | AccountingToken b32
MQCFH
  1: Type i4 1 | StrucLength i4 36 | Version i4 1 | Command i4 | MsgSeqNumber i4 1 | Control i4 1 | CompCode i4 |
     Reason i4 | ParameterCount i4
MQEPH
  1: StrucId c4 "EPH " | Version i4 1 | StrucLength i4 68 | Encoding i4 | CodedCharSetId i4 | Format c8 " " | Flags i4 |
     PCFHeader MQCFH/1
MQCFIN
  1: Type i4 3 | StrucLength i4 16 | Parameter i4 | Value i4
MQCFIN64
  1: Type i4 23 | StrucLength i4 24 | Parameter i4 | Reserved i4 | Value n8
MQCFST
  1: Type i4 4 | StrucLength i4 20 | Parameter i4 | CodedCharSetId i4 | StringLength i4
MQCFIL
  1: Type i4 5 | StrucLength i4 16 | Parameter i4 | Count i4
MQCFIL64
  1: Type i4 25 | StrucLength i4 16 | Parameter i4 | Count i4
MQCFSL
  1: Type i4 6 | StrucLength i4 24 | Parameter i4 | CodedCharSetId i4 | Count i4 | StringLength i4
MQCFBS
  1: Type i4 9 | StrucLength i4 16 | Parameter i4 | StringLength i4
MQCFIF
  1: Type i4 13 | StrucLength i4 20 | Parameter i4 | Operator i4 | FilterValue i4
MQCFSF
  1: Type i4 14 | StrucLength i4 24 | Parameter i4 | Operator i4 | CodedCharSetId i4 | FilterValueLength i4
MQCFBF
  1: Type i4 15 | StrucLength i4 20 | Parameter i4 | Operator i4 | FilterValueLength i4
MQCFGR
  1: Type i4 20 | StrucLength i4 16 | Parameter i4 | ParameterCount i4
"""
